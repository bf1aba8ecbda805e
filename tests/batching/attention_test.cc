// Attention that reads the states of children where they were computed: memory, bits, and what it leaves as it was.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/batching/cells.h"
#include "tests/engine/support.h"
#include "tests/ops/cases.h"
#include "tests/sanitized.h"
#include "windrow/batching/lazy_cell.h"

namespace windrow::testing {
namespace {

/// Words with a key and a value, and questions that attend to all words before them.
struct Reader : OnHost {
  const Index h;
  const Parameter keys = parameters.add("keys", 5, h, Initial::uniform(-1, 1)),
                  values = parameters.add("values", 5, h, Initial::uniform(-1, 1)),
                  questions = parameters.add("questions", 5, h, Initial::uniform(-1, 1)),
                  score = parameters.add("score", h, 1, Initial::uniform(-1, 1));

  explicit Reader(Index width) : h(width) {}

  /// `read` sums up values by what it makes of keys and a query.
  template <class Read>
  VertexFunction function(Read read) const {
    const VertexFunction word("word", {}, [&](Vertex& v) {
      const IndexExpr number = v.pull_index("number");
      v.scatter(v.state("key", h), embedding(keys, number));
      v.scatter(v.state("value", h), tanh(embedding(values, number)));
    });
    const VertexFunction question("question", {.arity = any_arity}, [&](Vertex& v) {
      const Expr query = tanh(embedding(questions, v.pull_index("number")));
      const Expr found = read(query, v.each(v.state("key", h)), v.each(v.state("value", h)));
      v.push("found", found);
      v.loss(row_sum(square(found)));
    });
    return VertexFunction("reader", {word, question});
  }
  VertexFunction function() const { return function(by_products); }
  static Expr by_products(const Expr& query, const Expr& key, const Expr& value) {
    const double scale = 1 / std::sqrt(static_cast<double>(query.width()));
    return sum_children(value * softmax_children(scale * row_dot(query, key)));
  }

  /// Additive attention to keys that are projected where they are made.
  VertexFunction additive() const {
    return function([this](const auto&... operands) { return by_sums(operands...); });
  }
  Expr by_sums(const Expr& query, const Expr& key, const Expr& value) const {
    return sum_children(mul_columns(value, softmax_children(matmul(tanh(query + key), score))));
  }

  static GraphData data(std::int32_t words, std::int32_t questions) {
    GraphData data;
    for (std::int32_t v = 0; v < words + questions; ++v) {
      data.kinds.push_back(v < words ? 0 : 1);
      data.indices["number"].push_back(v % 5);
      for (std::int32_t word = 0; word < words && v >= words; ++word) data.children.push_back(word);
      data.child_begin.push_back(static_cast<std::int32_t>(data.children.size()));
    }
    return data;
  }

  struct Trained {
    std::int64_t inference, training;  // bytes
    std::vector<std::vector<double>> gradients;
  };
  Trained train(const VertexFunction& function, const GraphData& data, RunnerOptions options = {}) {
    const Graphs graphs(function, {data});
    Runner reading(host, function, parameters, options), training(host, function, parameters, options);
    reading.run(graphs.pointers).loss();
    training.differentiate(graphs.pointers).loss();
    Trained trained{reading.stats().peak_bytes, training.stats().peak_bytes, {}};
    for (const Parameter& parameter : {keys, values, questions, score})
      trained.gradients.push_back(dense(parameters, parameter));
    parameters.forget_gradients();
    return trained;
  }
};

TEST(Attention, TakesNoMemoryForAPairOfAQueryAndAKeyBeyondItsScore) {
  constexpr Index h = 256, keys = 300, queries = 300, mega = 1'000'000, states = keys * 2 * h * 4;
  Reader reader(h);
  const Reader::Trained trained = reader.train(reader.function(), Reader::data(keys, queries));
  EXPECT_LT(trained.inference, states + 1 * mega);
  EXPECT_LT(trained.training, states + 5 * mega);
}

/// A training needs the hidden rows for its gradients.
TEST(Attention, TakesNoMemoryForHiddenRowsInInference) {
  constexpr Index h = 256, keys = 300, queries = 300, mega = 1'000'000, states = keys * 2 * h * 4;
  Reader reader(h);
  const VertexFunction function = reader.additive();
  const GraphData data = Reader::data(keys, queries);
  const Graphs graphs(function, {data});
  Runner runner(reader.host, function, reader.parameters),
      copied(reader.host, function, reader.parameters, {.optimisations = {.in_place = false}});
  const Minibatch here = runner.run(graphs.pointers), there = copied.run(graphs.pointers);
  const std::vector<float> found = here.output("found").get(), expected = there.output("found").get();
  expect_close({found.begin(), found.end()}, {expected.begin(), expected.end()}, 1e-5);
  EXPECT_LT(runner.stats().peak_bytes, states + 2 * mega);
  EXPECT_GT(copied.stats().peak_bytes, keys * queries * h * 4);
}

TEST(Attention, ToAValueThatIsNotFiniteNamesItsCause) {
  Reader reader(4);
  const VertexFunction word("word", {}, [&](Vertex& v) {
    v.scatter(v.state("key", 1), v.pull("x", 1));
    v.scatter(v.state("value", 1), log(v.pull("y", 1)));
  });
  const VertexFunction question("question", {.arity = any_arity}, [&](Vertex& v) {
    v.loss(Reader::by_products(v.pull("x", 1), v.each(v.state("key", 1)), v.each(v.state("value", 1))));
  });
  const VertexFunction function("reader", {word, question});
  GraphData data{.child_begin = {0, 0, 0, 2}, .children = {0, 1}, .kinds = {0, 0, 1}};
  data.values["x"] = {1, 2, 3};
  data.values["y"] = {1, 0, 1};
  const Graphs graphs(function, {data});
  Runner runner(reader.host, function, reader.parameters);
  const std::string said = error_of<OpError>([&] { runner.run(graphs.pointers).loss(); });
  EXPECT_NE(said.find("the first such value on its way is of 'log' at vertex 1 of graph 0"), std::string::npos) << said;
}

/// Each query is one vertex, and each element of the list is copied once, for all queries.
TEST(LazyAttention, IsOneVertexForAQuery) {
  constexpr Index h = 8;
  constexpr int keys = 30, queries = 20;
  Reader reader(h);
  LazyGraph graph(reader.host, reader.parameters);
  std::vector<LazyExpr> key, value, found;
  for (int i = 0; i < keys; ++i) {
    key.push_back(embedding(reader.keys, graph.index(i % 5)));
    value.push_back(tanh(embedding(reader.values, graph.index(i % 5))));
  }
  for (int q = 0; q < queries; ++q) {
    found.push_back(dot_attention(tanh(embedding(reader.questions, graph.index(q % 5))), key, value));
  }
  graph.flush();
  const LazyStats stats = graph.stats();
  EXPECT_EQ(stats.expressions, 2 * keys + keys + 2 * keys + 2 * queries + queries);
  EXPECT_LE(stats.vertices, 2 * keys + 2 * keys + 2 * queries);
}

/// Inference by lazy expressions, with queries that each see another part of the keys: a list by other weights for each
/// query, and a cell of additive attention.
TEST(LazyAttention, TakesNoMemoryForAPairOfAQueryAndAKey) {
  constexpr Index h = 256, keys = 100, queries = 60, mega = 1'000'000, states = keys * 2 * h * 4;
  Reader reader(h);
  LazyGraph graph(reader.host, reader.parameters, {.use = LazyOptions::For::inference});
  const LazyCell additive = graph.cell("additive", [&](CellBody& cell) {
    const Expr query = cell.operand(h), key = cell.each(h);
    cell.result(reader.by_sums(query, key, cell.each(h)));
  });
  std::vector<LazyExpr> values, elements, found;
  for (std::int32_t i = 0; i < keys; ++i) {
    values.push_back(tanh(embedding(reader.values, graph.index(i % 5))));
    elements.insert(elements.end(), {embedding(reader.keys, graph.index(i % 5)), values.back()});
  }
  for (std::int32_t q = 0; q < queries; ++q) {
    std::vector<LazyExpr> weights;
    for (std::int32_t i = 0; i < keys; ++i) weights.push_back(graph.input({static_cast<float>(i % (q + 1))}));
    found.push_back(weighted_sum(weights, values));
    found.push_back(additive({tanh(embedding(reader.questions, graph.index(q % 5)))}, {}, elements));
  }
  graph.flush();
  EXPECT_LT(graph.stats().runner.peak_bytes, 3 * states + 2 * mega);
}

}  // namespace
}  // namespace windrow::testing
