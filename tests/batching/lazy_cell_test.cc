// Cells of lazy expressions: they give what their operations give, and are one kind each.
#include "windrow/batching/lazy_cell.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/batching/cells.h"
#include "tests/engine/support.h"
#include "tests/ops/cases.h"

namespace windrow::testing {
namespace {

constexpr Index h = 3;

/// A tree whose vertices have up to two children, an optional word, and a label; and a loss that reads all vertices.
struct CellTrees : OnHost {
  const Parameter words = parameters.add("words", 5, h, Initial::uniform(-1, 1)),
                  below = parameters.add("below", 2 * h, h, Initial::uniform(-1, 1)),
                  query = parameters.add("query", h, h, Initial::uniform(-1, 1)),
                  out = parameters.add("out", h, 2, Initial::uniform(-1, 1));
  LazyGraph graph;

  explicit CellTrees(LazyOptions options = {}) : graph(host, parameters, options) {}

  /// Both ways to compute a vertex and to read all vertices.
  struct Way {
    std::function<std::pair<LazyExpr, LazyExpr>(const LazyExpr& left, const LazyExpr& right, std::int32_t word)> vertex;
    std::function<LazyExpr(const LazyExpr& root, const std::vector<LazyExpr>& all, std::int32_t label)> loss;
  };
  Way by_cells() {
    const LazyCell tree = graph.cell("tree", [this](CellBody& cell) {
      const Expr left = cell.operand(h), right = cell.operand(h);
      const Expr word = embedding(words, cell.index(Presence::sometimes));
      const Expr own = tanh(word + matmul(concat(left, right), below));
      cell.result(own);
      cell.result(square(own) + 0.5 * left);
    });
    const LazyCell read = graph.cell("read", [this](CellBody& cell) {
      const Expr root = cell.operand(h), state = cell.each(h), squared = cell.each(h);
      const Expr weight = exp(row_dot(state, to_children(matmul(root, query))));
      cell.result(softmax_cross_entropy(matmul(root + sum_children(squared * weight), out), cell.index()));
    });
    return {.vertex =
                [this, tree](const LazyExpr& left, const LazyExpr& right, std::int32_t word) {
                  auto [own, squared] = tree.call<2>({left, right}, {graph.index(word)});
                  return std::pair(std::move(own), std::move(squared));
                },
            .loss = [this, read](const LazyExpr& root, const std::vector<LazyExpr>& all,
                                 std::int32_t label) { return read({root}, {graph.index(label)}, all); }};
  }
  Way by_operations() {
    return {.vertex =
                [this](const LazyExpr& left, const LazyExpr& right, std::int32_t word) {
                  const auto or_zeros = [&](const LazyExpr& x) { return &x == &none ? graph.zeros(h) : x; };
                  const LazyExpr l = or_zeros(left);
                  LazyExpr x = matmul(concat(l, or_zeros(right)), below);
                  if (word >= 0) x = x + embedding(words, graph.index(word));
                  LazyExpr own = tanh(x);
                  LazyExpr squared = square(own) + 0.5 * l;
                  return std::pair(std::move(own), std::move(squared));
                },
            .loss =
                [this](const LazyExpr& root, const std::vector<LazyExpr>& all, std::int32_t label) {
                  LazyExpr total = root;
                  const LazyExpr asked = matmul(root, query);
                  for (std::size_t i = 0; i < all.size(); i += 2) {
                    total = total + mul_columns(all[i + 1], exp(row_dot(all[i], asked)));
                  }
                  return softmax_cross_entropy(matmul(total, out), graph.index(label));
                }};
  }
  const LazyExpr none;

  struct Result {
    std::vector<double> losses;
    std::vector<std::vector<double>> gradients;
  };
  /// Of `count` random trees. Flushes after every `flush_every`-th vertex; 0 for never.
  Result run(const Way& way, int count, int flush_every, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<LazyExpr> losses;
    int recorded = 0;
    for (int t = 0; t < count; ++t) {
      std::vector<LazyExpr> open, all;  // `all`: both results of each vertex
      const auto vertices = static_cast<int>(random() % 9);
      LazyExpr root = graph.input({0.5f, -0.25f, 1});
      for (int v = 0; v < vertices; ++v) {
        const auto take = [&]() -> LazyExpr {
          if (open.empty() || random() % 3 == 0) return {};
          LazyExpr last = open.back();
          open.pop_back();
          return last;
        };
        const LazyExpr left = take(), right = take();
        const auto is_none = [&](const LazyExpr& x) -> const LazyExpr& { return empty(x) ? none : x; };
        const auto word = static_cast<std::int32_t>(random() % 6) - 1;
        const auto [own, squared] = way.vertex(is_none(left), is_none(right), word);
        open.push_back(own);
        all.insert(all.end(), {own, squared});
        root = own;
        if (flush_every > 0 && ++recorded % flush_every == 0) graph.flush();
      }
      losses.push_back(way.loss(root, all, static_cast<std::int32_t>(random() % 2)));
    }
    graph.backward(losses);
    Result result;
    for (const LazyExpr& loss : losses) result.losses.push_back(static_cast<double>(loss.scalar()));
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      result.gradients.push_back(dense(parameters, parameters[p]));
    }
    graph.clear();
    return result;
  }
  static bool empty(const LazyExpr& x) {
    try {
      x.width();
    } catch (const MisuseError&) {
      return true;
    }
    return false;
  }
};

/// Functions of whole parameters, made outside of a cell and within, with a penalty for each call.
TEST(LazyCells, ComputeWithFunctionsOfWholeParameters) {
  CellTrees s;
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

TEST(LazyCells, GiveWhatTheirOperationsGive) {
  for (const std::int64_t recompute_below : {std::int64_t{0}, std::int64_t{20'000'000}}) {
    CellTrees s({.recompute_below = recompute_below});
    const CellTrees::Way cells = s.by_cells(), operations = s.by_operations();
    for (const int flush_every : {0, 3}) {
      SCOPED_TRACE(flush_every);
      const CellTrees::Result made = s.run(cells, 12, flush_every, 7), expected = s.run(operations, 12, flush_every, 7);
      expect_close(made.losses, expected.losses, 1e-5);
      for (std::size_t p = 0; p < made.gradients.size(); ++p) {
        SCOPED_TRACE(s.parameters.name(s.parameters[p]));
        expect_close(made.gradients[p], expected.gradients[p], 1e-4);
      }
    }
  }
}

TEST(LazyCells, AreAVertexForEachCallWhateverTheLengthOfAList) {
  CellTrees s;
  const CellTrees::Way cells = s.by_cells();
  std::vector<LazyExpr> all;
  LazyExpr last = s.graph.input({1, 2, 3}), loss;
  for (int length = 0; length < 6; ++length) {
    auto [own, squared] = cells.vertex(last, s.none, 2);
    loss = cells.loss(own, all, 1);
    last = own;
    all.insert(all.end(), {own, squared});
  }
  s.graph.flush();
  const LazyStats stats = s.graph.stats();
  EXPECT_EQ(stats.kinds, 5);  // the input, the vertices, what reads them, and copies for two places
  EXPECT_EQ(stats.vertices, 1 + 6 + 6 + 2 * 5);
  EXPECT_EQ(stats.expressions, 1 + 2 * 6 + 6 + 2 * 5);
}

TEST(LazyCells, ShareCopiesOfWhatAnEarlierFlushComputed) {
  CellTrees s;
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
  CellTrees s;
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
  CellTrees other;
  EXPECT_EQ(called([&] { cell({other.graph.input({1, 2, 3})}, {zero}); }), "g: an expression of another lazy graph");
  s.graph.clear();
  EXPECT_EQ(called([&] { cell({x}, {zero}); }), "g: an expression from before clear(); expected one recorded since");
  EXPECT_EQ(s.graph.stats().expressions, 0);  // what was refused has left nothing
}

TEST(LazyCells, MayOutliveTheirGraph) {
  std::optional<LazyCell> cell;
  std::optional<LazyExpr> x;
  {
    CellTrees s;
    cell = s.graph.cell("f", [](CellBody& c) { c.result(square(c.operand(1))); });
    x = s.graph.input({3});
    EXPECT_EQ((*cell)({*x}).scalar(), 9);
  }
  EXPECT_EQ(error_of<MisuseError>([&] { (*cell)({*x}); }), "f: an operand of a lazy graph that is gone");
}

}  // namespace
}  // namespace windrow::testing
