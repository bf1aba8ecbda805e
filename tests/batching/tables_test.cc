// Tables that are used in several ways at once: bags of indices, lookups and products; and whole parameters.
#include "tests/batching/cells.h"
#include "tests/batching/check_minibatch.h"
#include "tests/batching/image_cell.h"
#include "tests/batching/layers_cell.h"

namespace windrow::testing {
namespace {

Row embedding_bag(const RowOperand& table, const OracleIndex& rows) {
  return apply(op::embedding_bag, {table}, {rows});
}

class WholeParameters : public ::testing::Test, protected OnHost {};

/// A vertex without children: words, some of them in bags, and a classifier that is the table.
struct TiedCell {
  static constexpr Index words = 6, width = 4, bag = 3;
  Parameter table;
  bool tied;

  TiedCell(Parameters& p, bool is_tied) : table(p.add("table", words, width, Initial::uniform(-1, 1))), tied(is_tied) {}

  void operator()(auto& v) const {
    const auto word = embedding(table, v.pull_index("word"));
    const auto some = embedding_bag(table, v.pull_index("bag", Presence::always, bag));
    const auto x = tanh(word * some) + word;
    v.push("bag", some);
    v.loss(row_sum(square(x)));
    if (tied) v.loss(softmax_cross_entropy(matmul_nt(x, table), v.pull_index("label")));
  }
};

GraphData some_words(std::int32_t vertices) {
  std::mt19937 random(first_seed());
  GraphData data = leaves(static_cast<std::size_t>(vertices));
  for (std::int32_t v = 0; v < vertices; ++v) {
    data.indices["word"].push_back(static_cast<std::int32_t>(random() % 5));  // the last one is in no sample
    data.indices["label"].push_back(static_cast<std::int32_t>(random() % 6));
    for (Index i = 0; i < TiedCell::bag; ++i) {
      data.indices["bag"].push_back(static_cast<std::int32_t>(random() % 6) - 1);
    }
  }
  return data;
}

TEST(Tables, AreLookedUpInBagsAndMultipliedAtOnce) {
  for (const bool tied : {false, true}) {
    OnHost s({.workers = 2}, first_seed());
    Parameters& parameters = s.parameters;
    const TiedCell cell(parameters, tied);
    const VertexFunction function("tied", {}, [&](Vertex& v) { cell(v); });
    Oracle oracle(parameters, [&](OracleVertex& v) { cell(v); });
    Runner runner(s.host, function, parameters, {.groups = 2, .group_flops = 1});
    check_minibatch(runner, parameters, oracle, function, {some_words(9), some_words(1), some_words(4)});
    // The rows of lookups stay rows; the others are one tensor.
    const Gradient parts = parameters.gradient(cell.table);
    EXPECT_EQ(parts.all.has_value(), tied);
    EXPECT_FALSE(parts.rows.empty());
    for (const auto& [of, rows] : parts.rows) EXPECT_EQ(of.rows(), rows.rows());
    const Gradient sum = parameters.summed_gradient(cell.table);
    Values summed = dense(parameters, cell.table);
    if (!tied) {
      const std::vector<std::int32_t> of = sum.rows.at(0).of.get();
      const std::vector<float> rows = sum.rows.at(0).rows.get();
      Values all(summed.size(), 0);
      for (std::size_t r = 0; r < of.size(); ++r) {
        for (std::size_t c = 0; c < TiedCell::width; ++c) {
          all[static_cast<std::size_t>(of[r]) * TiedCell::width + c] = rows[r * TiedCell::width + c];
        }
      }
      expect_close(all, summed, 1e-6);
    }
    // One step of descent along both parts.
    const std::vector<float> before = parameters.value(cell.table).get();
    parameters.sgd(0.5);
    const std::vector<float> after = parameters.value(cell.table).get();
    for (std::size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(after[i], before[i] - 0.5 * summed[i], 1e-5);
  }
}

/// By apply(), which makes a function of parameters of a list of parameters, with a row for all rows.
TEST_F(WholeParameters, AreOperandsOfAnyOperatorAlone) {
  const Parameter w = parameters.add("w", 2, 2, Initial::constant(3)),
                  row = parameters.add("row", 1, 2, Initial::constant(2)),
                  one = parameters.add("one", 1, 1, Initial::constant(5));
  const LazyWeight twice = windrow::apply(op::add, {row, row}),
                   mixed = windrow::apply(op::mul, {windrow::apply(op::sub, {one, w}), twice}),
                   spread = windrow::apply(op::spread_columns, {one}, {}, op::to_width(2));
  const auto loss = [&](const auto& x, const auto& of_mixed, const auto& of_twice, const auto& of_spread) {
    return row_sum(matmul(x, of_mixed)) + row_sum(of_twice * x - of_spread);
  };
  const auto expect_gradients = [&] {
    EXPECT_EQ(dense(parameters, w), (Values{-4, -4, -8, -8}));
    EXPECT_EQ(dense(parameters, row), (Values{12 + 2, 12 + 4}));
    EXPECT_EQ(dense(parameters, one), (Values{24 - 2}));
    parameters.forget_gradients();
  };
  const VertexFunction function("alone", {}, [&](Vertex& v) {
    v.loss(loss(v.pull("x", 2), v.parameter(mixed), v.parameter(twice), v.parameter(spread)));
  });
  EXPECT_EQ(differentiated(function, {leaves(1, {1, 2})}).loss(), 48 + 2);
  expect_gradients();
  LazyGraph graph(host, parameters);
  const LazyExpr lazy = loss(graph.input({1, 2}), mixed, twice, spread);
  graph.backward(std::array{lazy});
  EXPECT_EQ(lazy.scalar(), 48 + 2);
  expect_gradients();
  const auto said = [](auto call) { return error_of<MisuseError>(call); };
  EXPECT_EQ(said([&] {
              windrow::apply(op::add, {w, LazyWeight(parameters.add("wide", 1, 3, Initial::zeros()))});
            }),
            "add: operands 2 x 2, 1 x 3; expected operands of one shape");
  EXPECT_EQ(said([&] { windrow::apply(op::concat, std::initializer_list<LazyWeight>{}); }),
            "concat of no operands; expected one or more");
}

/// A penalty once per minibatch is the loss of a vertex of its own, in a graph of its own.
TEST_F(WholeParameters, MayBePenalisedOncePerMinibatch) {
  const Parameter w = parameters.add("w", 2, 3, Initial::constant(3));
  const VertexFunction word("word", {}, [&](Vertex& v) { v.loss(row_sum(matmul(v.pull("x", 2), w))); });
  const VertexFunction penalty("penalty", {},
                               [&](Vertex& v) { v.loss(v.zeros(1) + column_sum(row_sum(square(v.parameter(w))))); });
  const VertexFunction function("both", {word, penalty});
  GraphData words = leaves(2, {1, 0, 1, 0}), once = leaves(1, {0, 0});
  words.kinds = {0, 0};
  once.kinds = {1};
  EXPECT_EQ(differentiated(function, {words, once, words}).loss(), 4 * 9 + 6 * 9);
  EXPECT_EQ(dense(parameters, w), (Values{4 + 6, 4 + 6, 4 + 6, 6, 6, 6}));
}

/// Sentence models show that the draws have the probabilities of the softmax.
TEST_F(WholeParameters, MayBeDrawnFromByKeys) {
  const Floats logits = {0, 1, -1, 2, -1e30f};
  const VertexFunction function("samples", {}, [&](Vertex& v) {
    v.push("drawn", sample(v.pull("x", 5), v.pull_index("keys", Presence::always, 3), first_seed()));
  });
  LazyGraph graph(host, parameters);
  std::set<float> drawn;
  for (std::int32_t i = 0; i < 50; ++i) {
    const std::array<std::int32_t, 3> keys = {7, i, 0};
    GraphData data = leaves(1, logits);
    data.indices["keys"] = {7, i, 0};
    const float one = *drawn.insert(computed(function, {data}).output("drawn").get()[0]).first;
    EXPECT_EQ(sample(graph.input(logits), graph.index(keys), first_seed()).scalar(), one);
  }
  EXPECT_GT(drawn.size(), 1u);
  EXPECT_FALSE(drawn.contains(4));
}

}  // namespace
}  // namespace windrow::testing
