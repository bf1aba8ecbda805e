// Cells of lazy expressions: they give what their operations give, also by lists of several results of one cell, and
// are one kind each.
#include "windrow/batching/lazy_cell.h"

#include "tests/batching/cells.h"

namespace windrow::testing {
namespace {

constexpr Index h = 3;

struct CellGraph : OnHost {
  explicit CellGraph(std::int64_t recompute_below = LazyOptions().recompute_below)
      : graph(host, parameters, {.recompute_below = recompute_below}) {}

  const Parameter words = parameters.add("words", 5, h, Initial::uniform(-1, 1)),
                  query = parameters.add("query", h, h, Initial::uniform(-1, 1)),
                  out = parameters.add("out", h, 2, Initial::uniform(-1, 1));
  LazyGraph graph;
};

/// Random programs, in which lists, cells and other operations take results of cells with one and two results, inputs,
/// and values of operations, in any place and across flushes. If the cells are written out as operations, they are the
/// oracle.
class MixedLists {
 public:
  MixedLists(bool written_out, std::int64_t recompute_below) : written_out_(written_out), s_(recompute_below) {}

  void forget() { s_.graph.forget(); }

  /// The loss, then the gradient of the words.
  Values run(unsigned seed) {
    std::mt19937 random(seed);
    const auto draw = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    std::vector<LazyExpr> values, losses;
    const auto any = [&] { return values[draw(values.size())]; };
    const auto list = [&](std::size_t size) {
      std::vector<LazyExpr> elements;
      for (std::size_t i = 0; i < size; ++i) elements.push_back(any());
      return elements;
    };
    const auto more = [&] {
      const auto word = static_cast<std::int32_t>(draw(5));
      switch (draw(4)) {
        case 0:
          return values.push_back(one(word));
        case 1:
          return values.push_back(s_.graph.input({1, -0.5f, 0.25f}));
        case 2:
          return values.push_back(values.empty() ? s_.graph.zeros(h) : tanh(any()));
        default:
          break;
      }
      std::optional<LazyExpr> below;
      if (!values.empty() && draw(2) == 1) below = any();
      auto [two, three] = both(below, draw(3) == 0 ? -1 : word);
      values.push_back(std::move(two));
      values.push_back(std::move(three));
    };
    for (int i = 0; i < 4; ++i) more();
    for (int i = 0; i < 8; ++i) {
      switch (draw(6)) {
        case 0:
          losses.push_back(squares(list(draw(4))));
          break;
        case 1:
          losses.push_back(pairs(any(), list(2 * draw(4))));
          break;
        case 2:
          losses.push_back(row_sum(tanh(any())));
          break;
        case 3:
          losses.push_back(row_sum(any() * any()));
          break;
        case 4:
          s_.graph.flush();
          break;
        default:
          more();
      }
    }
    losses.push_back(pairs(any(), list(4)));
    s_.graph.backward(losses);
    Values results(1);
    for (const LazyExpr& loss : losses) results[0] += loss.scalar();
    for (const float gradient : s_.parameters.dense_gradient(s_.words).get()) results.push_back(gradient);
    s_.graph.clear();
    return results;
  }

 private:
  LazyExpr one(std::int32_t word) {
    return written_out_ ? embedding(s_.words, s_.graph.index(word)) : one_({}, {s_.graph.index(word)});
  }
  std::pair<LazyExpr, LazyExpr> both(const std::optional<LazyExpr>& below, std::int32_t word) {
    if (!written_out_) {
      auto [two, three] = both_.call<2>({below ? *below : LazyExpr()}, {s_.graph.index(word)});
      return {std::move(two), std::move(three)};
    }
    const LazyExpr y = below ? *below : s_.graph.zeros(h), x = word < 0 ? s_.graph.zeros(h) : one(word);
    return {2.0 * x + 0.5 * tanh(y), 3.0 * x - 0.25 * y};
  }
  LazyExpr squares(const std::vector<LazyExpr>& list) {
    if (!written_out_) return squares_({}, {}, list);
    LazyExpr sum = s_.graph.zeros(1);
    for (const LazyExpr& element : list) sum = sum + row_sum(square(element));
    return sum;
  }
  LazyExpr pairs(const LazyExpr& own, const std::vector<LazyExpr>& list) {
    if (!written_out_) return pairs_({own}, {}, list);
    LazyExpr sum = s_.graph.zeros(1);
    for (std::size_t i = 0; i < list.size(); i += 2) sum = sum + row_sum(list[i] * tanh(list[i + 1]) * own);
    return sum;
  }

  const bool written_out_;
  CellGraph s_;
  const LazyCell one_ = s_.graph.cell("one", [this](CellBody& c) { c.result(embedding(s_.words, c.index())); });
  const LazyCell both_ = s_.graph.cell("both", [this](CellBody& c) {
    const Expr x = embedding(s_.words, c.index(Presence::sometimes)), below = c.operand(h);
    c.result(2.0 * x + 0.5 * tanh(below));
    c.result(3.0 * x - 0.25 * below);
  });
  const LazyCell squares_ =
      s_.graph.cell("squares", [](CellBody& c) { c.result(row_sum(sum_children(square(c.each(h))))); });
  const LazyCell pairs_ = s_.graph.cell("pairs", [](CellBody& c) {
    const Expr own = c.operand(h), x = c.each(h), y = c.each(h);
    c.result(row_sum(sum_children(x * tanh(y) * to_children(own))));
  });
};

/// Functions of whole parameters, made outside of a cell and within, with a penalty for each call.
TEST(LazyCells, ComputeWithFunctionsOfWholeParameters) {
  CellGraph s;
  const LazyWeight positive = exp(LazyWeight(s.query)) - 0.5 * LazyWeight(s.query);
  const LazyWeight penalty = column_sum(row_sum(square(LazyWeight(s.out))));
  const LazyCell cell = s.graph.cell("cell", [&](CellBody& c) {
    const Expr x = c.operand(h), other = c.operand(h);
    const Expr narrow = tanh(c.parameter(s.query));
    const Expr y = matmul(x, c.parameter(positive)) + matmul(other, matmul(narrow, narrow));
    c.result(row_sum(matmul(y, s.out)) + 0.5 * (c.zeros(1) + c.parameter(penalty)));
  });
  const LazyWeight narrow = tanh(LazyWeight(s.query));
  const auto written = [&](const LazyExpr& x, const LazyExpr& other) {
    const LazyExpr y = matmul(x, positive) + matmul(other, matmul(narrow, narrow));
    return row_sum(matmul(y, s.out)) + 0.5 * (s.graph.zeros(1) + penalty);
  };
  const auto loss = [&](bool by_cell) {
    std::vector<LazyExpr> losses;
    for (const float f : {0.5f, -1.0f, 2.0f}) {
      const LazyExpr x = s.graph.input({f, 1, -f}), other = s.graph.input({1, f, f * f});
      losses.push_back(by_cell ? cell({x, other}) : written(x, other));
    }
    losses.push_back(by_cell ? cell({s.graph.input({1, 2, 3}), {}})
                             : written(s.graph.input({1, 2, 3}), s.graph.zeros(h)));
    s.graph.backward(losses);
    double sum = 0;
    for (const LazyExpr& one : losses) sum += static_cast<double>(one.scalar());
    s.graph.clear();
    return sum;
  };
  const double expected = loss(false);
  const std::vector<double> of_query = dense(s.parameters, s.query), of_out = dense(s.parameters, s.out);
  EXPECT_NEAR(loss(true), expected, 1e-5 * std::abs(expected));
  expect_close(dense(s.parameters, s.query), of_query, 1e-5);
  expect_close(dense(s.parameters, s.out), of_out, 1e-5);
}

TEST(LazyCells, AreAVertexForEachCallWhateverTheLengthOfAList) {
  CellGraph s;
  const LazyCell vertex = s.graph.cell("vertex", [](CellBody& c) {
    const Expr own = tanh(c.operand(h));
    c.result(own);
    c.result(square(own));
  });
  const LazyCell read =
      s.graph.cell("read", [](CellBody& c) { c.result(row_sum(c.operand(h) + sum_children(c.each(h) * c.each(h)))); });
  std::vector<LazyExpr> all;
  LazyExpr last = s.graph.input({1, 2, 3}), loss;
  for (int length = 0; length < 6; ++length) {
    auto [own, squared] = vertex.call<2>({last});
    loss = read({own}, {}, all);
    last = own;
    all.insert(all.end(), {own, squared});
  }
  s.graph.flush();
  const LazyStats stats = s.graph.stats();
  EXPECT_EQ(stats.kinds, 3);  // the input, the vertices, and what reads them
  EXPECT_EQ(stats.vertices, 1 + 6 + 6);
  EXPECT_EQ(stats.expressions, 1 + 2 * 6 + 6);
}

TEST(LazyCells, AreCalledWithNumbersThatOnlyTheRunKnows) {
  CellGraph s;
  const LazyCell vertex = s.graph.cell("vertex", [](CellBody& c) {
    const Expr x = c.operand(1);
    c.result(x + 1);
    c.result(2 * x);
  });
  const LazyExpr x = s.graph.input({5});
  std::vector<lazy::OperandRef> operands{x};
  const std::vector<LazyExpr> results = vertex.call(operands, {});
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].scalar(), 6);
  EXPECT_EQ(results[1].scalar(), 10);
  operands.push_back(x);
  EXPECT_THROW(vertex.call(operands, {}), MisuseError);
}

/// A place of a cell takes the first result of a leaf for the second one of another vertex. Lists take it for the
/// first.
TEST(LazyCells, ReadResultsInPlaceThatOperationsTakeForOthers) {
  CellGraph s;
  const LazyCell vertex = s.graph.cell("vertex", [](CellBody& c) {
    const Expr x = c.operand(1);
    c.result(x + 1);
    c.result(x + 2);
  });
  const LazyCell twice = s.graph.cell("twice", [](CellBody& c) { c.result(2 * c.operand(1)); });
  const LazyCell total = s.graph.cell("total", [](CellBody& c) { c.result(sum_children(c.each(1))); });
  for (int minibatch = 0; minibatch < 2; ++minibatch) {
    const std::int64_t before = s.graph.stats().vertices;
    const auto [one, unread] = vertex.call<2>({LazyExpr()});
    const auto [two, three] = vertex.call<2>({one});
    const LazyExpr first = twice({one}), second = twice({three}), list[] = {one, two};
    EXPECT_EQ(total({}, {}, list).scalar(), 1 + 2);
    EXPECT_EQ(first.scalar(), 2);
    EXPECT_EQ(second.scalar(), 6);
    EXPECT_EQ(s.graph.stats().vertices - before, 2 + 2 + 1) << "a vertex for each call, and no copies";
    s.graph.clear();
  }
}

TEST(LazyCells, ReadAnyResultsInAnyPlacesOfLists) {
  for (const std::int64_t recompute_below : {0, 20'000'000}) {
    MixedLists plain(false, recompute_below), written_out(true, recompute_below);
    std::optional<MixedLists> later;  // which goes on from a checkpoint of the plain one, bit by bit
    for (unsigned seed = 0; seed < 60; ++seed) {
      const Values expected = written_out.run(seed);
      if (seed % 20 == 19) {
        plain.forget();
        later.emplace(false, recompute_below);
      }
      Values found;
      ASSERT_NO_THROW(found = plain.run(seed)) << "seed " << seed;
      ASSERT_EQ(found.size(), expected.size());
      for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_NEAR(found[i], expected[i], 1e-4 * (1 + std::abs(expected[i]))) << "seed " << seed << ", " << i;
      }
      if (later) {
        EXPECT_EQ(later->run(seed), found) << "seed " << seed;
      }
    }
  }
}

/// Elements of other widths, of which there is none so far.
TEST(LazyCells, ReadEmptyListsOfSeveralWidths) {
  CellGraph s;
  const auto adding = [&](Index width) {
    return s.graph.cell("adding " + std::to_string(width),
                        [=](CellBody& c) { c.result(c.operand(width) + sum_children(c.each(width))); });
  };
  const LazyCell two = adding(2), three = adding(3);
  const auto x = [&] { return s.graph.input({1, 2}); };
  const auto y = [&] { return s.graph.input({1, 2, 3}); };
  const LazyExpr a = two({x()}), b = three({y()});
  EXPECT_EQ(a.value(), (std::vector<float>{1, 2}));
  EXPECT_EQ(b.value(), (std::vector<float>{1, 2, 3}));
  s.graph.clear();
  const LazyExpr list[] = {two({x()})};
  EXPECT_EQ(two({x()}, {}, list).value(), (std::vector<float>{2, 4}));
  EXPECT_EQ(three({y()}).value(), (std::vector<float>{1, 2, 3}));
}

TEST(LazyCells, ShareCopiesOfWhatAnEarlierFlushComputed) {
  CellGraph s;
  const LazyCell total = s.graph.cell("total", [](CellBody& c) { c.result(sum_children(c.each(1) * c.each(1))); });
  std::vector<LazyExpr> list;
  for (int i = 1; i <= 6; ++i) list.push_back(s.graph.input({static_cast<float>(i)}));
  for (int flush = 0; flush < 3; ++flush) {
    s.graph.flush();
    const std::int64_t before = s.graph.stats().expressions;
    std::vector<LazyExpr> totals;
    for (int call = 0; call < 4; ++call) totals.push_back(total({}, {}, list));
    totals.push_back(total({}, {}, std::span(list).subspan(1, 4)));  // other pairs
    for (int call = 0; call < 4; ++call) EXPECT_EQ(totals[static_cast<std::size_t>(call)].scalar(), 2 + 12 + 30);
    EXPECT_EQ(totals[4].scalar(), 6 + 20);
    EXPECT_EQ(s.graph.stats().expressions - before, 5 + 6 + 4) << "calls, and one copy of each element";
  }
}

TEST(LazyCells, RefuseWhatTheirBodiesDoNotTake) {
  CellGraph s;
  const auto made = [&](const std::function<void(CellBody&)>& body) {
    return error_of<MisuseError>([&] { s.graph.cell("f", body); });
  };
  EXPECT_EQ(made({}), "f: no body; expected a function of a CellBody");
  EXPECT_EQ(made([](CellBody& c) { c.operand(2); }), "f: no result; expected one or more");
  EXPECT_EQ(made([](CellBody& c) { c.result(c.each(2)); }), "f: a result that is of a list; expected it to be reduced");
  EXPECT_EQ(made([](CellBody& c) { c.result(c.operand(2) + c.operand(3)); }), error_of<MisuseError>([] {
              VertexFunction("f", {.arity = 2}, [](Vertex& v) {
                v.push("x", v.gather(0, v.state("a", 2)) + v.gather(1, v.state("b", 3)));
              });
            }));
  EXPECT_EQ(
      made([](CellBody& c) { c.result(dropout(c.operand(2), {.rate = 0.5, .mask = Dropout::Mask::sample})); }),
      "f: dropout with a mask of a sample; expected a mask of its own in lazy expressions, which know no samples");
  EXPECT_EQ(made([](CellBody& c) {
              for (int i = 0; i < 17; ++i) c.operand(1);
            }),
            "f: more than 16 operands; expected at most so many");
  EXPECT_EQ(made([&](CellBody& c) {
              Expr sum = c.operand(h) + sum_children(c.each(h));
              for (int i = 0; i < 30; ++i) sum = sum + embedding(s.words, c.index(Presence::sometimes));
              c.result(sum);
            }),
            "f: 1 operands, 1 of each element and 30 optional indices; expected at most 31 together");
  Parameters others(s.host, 1);
  const Parameter foreign = others.add("w", 2, 2, Initial::zeros());
  EXPECT_EQ(made([&](CellBody& c) { c.result(matmul(c.operand(2), foreign)); }),
            "f: parameter 'w' of another set; expected one of this");

  const LazyCell cell = s.graph.cell("g", [&](CellBody& c) {
    const Expr x = c.operand(h) + embedding(s.words, c.index());
    c.result(x + sum_children(c.each(h) * c.each(1)));
  });
  const LazyExpr x = s.graph.input({1, 2, 3}), one = s.graph.input({1});
  const LazyIndex zero = s.graph.index(0);
  const auto called = [&](const std::function<void()>& call) { return error_of<MisuseError>(call); };
  EXPECT_EQ(called([&] { cell({}, {zero}); }), "g: 0 operands; expected 1");
  EXPECT_EQ(called([&] { cell({x}); }), "g: 0 indices; expected 1");
  EXPECT_EQ(called([&] { cell.call<2>({x}, {zero}); }), "g: 2 results; expected 1");
  EXPECT_EQ(called([&] { cell({one}, {zero}); }), "g: an operand of width 1; expected 3");
  EXPECT_EQ(called([&] { cell({s.out}, {zero}); }), "g: a parameter as an operand; expected an expression");
  EXPECT_EQ(called([&] { cell({x}, {s.graph.index(5)}); }), "g: index 5; expected 0 to 4");
  const LazyExpr odd[] = {x}, wrong[] = {x, x};
  EXPECT_EQ(called([&] { cell({x}, {zero}, odd); }), "g: 1 expressions in its list; expected a multiple of 2");
  EXPECT_EQ(called([&] { cell({x}, {zero}, wrong); }), "g: an operand of width 3; expected 1");
  CellGraph other;
  EXPECT_EQ(called([&] { cell({other.graph.input({1, 2, 3})}, {zero}); }), "g: an expression of another lazy graph");
  s.graph.clear();
  EXPECT_EQ(called([&] { cell({x}, {zero}); }), "g: an expression from before clear(); expected one recorded since");
  EXPECT_EQ(s.graph.stats().expressions, 0);  // what was refused has left nothing
}

TEST(LazyCells, MayOutliveTheirGraph) {
  std::optional<LazyCell> cell;
  std::optional<LazyExpr> x;
  {
    CellGraph s;
    cell = s.graph.cell("f", [](CellBody& c) { c.result(square(c.operand(1))); });
    x = s.graph.input({3});
    EXPECT_EQ((*cell)({*x}).scalar(), 9);
  }
  EXPECT_EQ(error_of<MisuseError>([&] { (*cell)({*x}); }), "f: an operand of a lazy graph that is gone");
}

}  // namespace
}  // namespace windrow::testing
