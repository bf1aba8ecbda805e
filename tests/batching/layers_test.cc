// The operators of layers, reductions over children and attention to them: in vertex functions and in lazy expressions
// as the oracle computes them, and what they cost.
#include "windrow/models/layers.h"

#include "tests/batching/check_minibatch.h"
#include "tests/batching/layers_cell.h"

namespace windrow::testing {
namespace {

/// Makes constants and functions of parameters for lazy expressions.
struct LazyRows {
  LazyGraph& graph;
  LazyExpr zeros(Index width) { return graph.zeros(width); }
  LazyExpr constant(Index width, double value) { return graph.constant(width, value); }
  LazyWeight parameter(const Parameter& parameter) { return parameter; }
};

/// A graph of vertices without children.
class Layers : public ::testing::Test, protected OnHost {
 protected:
  Layers() : OnHost({.workers = 2}, first_seed()) {
    std::mt19937 random(first_seed());
    for (const double x : random_row(vertices * LayersCell::in, random)) data.values["x"].push_back(x / 2);
    for (std::int32_t v = 0; v < vertices; ++v) data.indices["label"].push_back(v % LayersCell::h - 1);
  }
  static constexpr std::int32_t vertices = 7;
  using Made = std::map<std::string, std::vector<LazyExpr>>;

  /// The values of all vertices as lazy expressions, of whose sums the gradients are set.
  Made differentiate(LazyGraph& graph) {
    Made made;
    std::vector<LazyExpr> losses;
    for (std::size_t v = 0; v < vertices; ++v) {
      const std::span<const float> x(data.values["x"].data() + v * LayersCell::in, LayersCell::in);
      LazyRows rows{graph};
      cell.compute(rows, graph.input(x), graph.index(data.indices["label"][v]),
                   [&](const char* name, const LazyExpr& value) {
                     made[name].push_back(value);
                     losses.push_back(row_sum(value));
                   });
      if (v == 2) graph.flush();
    }
    graph.backward(losses);
    return made;
  }

  LayersCell cell{parameters};
  VertexFunction function{"layers", {.arity = LayersCell::arity}, [&](Vertex& v) { cell(v); }};
  Oracle oracle{parameters, [&](OracleVertex& v) { cell(v); }};
  GraphData data = leaves(vertices);
};

TEST_F(Layers, InVertexFunctionsAreAsTheOracleComputesThem) {
  Runner runner(host, function, parameters);
  check_minibatch(runner, parameters, oracle, function, {data});
}

TEST_F(Layers, InLazyExpressionsAreAsInVertexFunctions) {
  oracle.loss({data});
  differentiated(function, {data});
  const auto expected = gradients();
  for (const std::int64_t recompute_below : {0, 20'000'000}) {
    LazyGraph graph(host, parameters, {.recompute_below = recompute_below});
    for (const auto& [name, values] : differentiate(graph)) {
      SCOPED_TRACE(name);
      Values all;
      for (const LazyExpr& value : values) {
        const std::vector<float> row = value.value();
        all.insert(all.end(), row.begin(), row.end());
      }
      expect_close(all, oracle.outputs.at(name), 1e-5);
    }
    const auto found = gradients();
    for (std::size_t p = 0; p < expected.size(); ++p) {
      SCOPED_TRACE(parameters.name(parameters[p]));
      expect_close(found[p], expected[p], 1e-5);
    }
  }
}

/// Of x * x, with one factor as a constant and with a reversed one.
TEST_F(Layers, StopAndReverseGradients) {
  const Parameter u = parameters.add("u", 1, 2, Initial::constant(3));
  const VertexFunction f("stops", {}, [&](Vertex& v) {
    const Expr x = v.zeros(2) + u;
    v.loss(row_sum(stop_gradient(x) * x) + row_sum(square(reverse_gradient(x, 0.5))) + row_sum(stop_gradient(x)));
  });
  EXPECT_EQ(differentiated(f, {leaves(1)}).loss(), 2 * (9 + 9 + 3));
  EXPECT_EQ(dense(parameters, u), (Values(2, 3 - 0.5 * 6)));

  LazyGraph graph(host, parameters);
  const LazyExpr x = graph.parameter(u);
  graph.backward(std::array{row_sum(stop_gradient(x) * x + square(reverse_gradient(x, 0.5)) + stop_gradient(x))});
  EXPECT_EQ(dense(parameters, u), (Values(2, 3 - 0.5 * 6)));
}

// The oracle's versions.
Row log_sum_exp_children(const Row& x) {
  return x.type.rows.number() == 0 ? sum_children(x) : apply(op::log, {sum_children(exp(x))});
}

/// A child may stand in several places; then its elements count as often.
Row k_max_children(const Row& x, Index k) {
  const auto width = static_cast<std::size_t>(x.type.width), most = static_cast<std::size_t>(k);
  Row result{x.oracle, {Rows::count(1), k * x.type.width}, std::vector<double>(most * width, 0)};
  for (std::size_t c = 0; c < width; ++c) {
    std::vector<double> column;
    for (std::size_t i = c; i < x.values.size(); i += width) column.push_back(x.values[i]);
    std::sort(column.rbegin(), column.rend());
    for (std::size_t i = 0; i < std::min(most, column.size()); ++i) result.values[i * width + c] = column[i];
  }
  return result;
}

Row attend(const DotAttention&, const Row& query, const Row& keys, const Row& values) {
  return sum_children(values * softmax_children(1 / std::sqrt(query.type.width) * row_dot(keys, query)));
}

struct ReducingCell {
  static constexpr std::size_t arity = any_arity;
  static constexpr Index h = 3;
  Parameters& parameters;
  AdditiveAttention attention;
  Parameter w;
  explicit ReducingCell(Parameters& p)
      : parameters(p), attention(p, "attention", {h, h, 4}), w(p.add("w", 2, h, Initial::uniform(-1, 1))) {}

  Expr by_network(const Expr& query, const Expr& keys, const Expr& mask) const {
    return attend(attention, query, keys, keys, mask);
  }
  Row by_network(const Row& query, const Row& keys, const Row& mask) const {
    const auto of = [&](const char* name) { return parameters.find(std::string("attention ") + name); };
    const Row hidden = tanh(matmul(query, of("query")) + matmul(keys, of("key")));
    return sum_children(keys * softmax_children(matmul(hidden, of("score")) + mask));
  }

  void operator()(auto& v) const {
    const auto state = v.state("h", h);
    const auto own = tanh(matmul(v.pull("x", 2), w)), children = v.each(state);
    const auto mask = slice(v.pull_edge("weight", 2), 0, 1);
    const auto log_sum = log_sum_exp_children(children), dot = attend(DotAttention(), own, children, children),
               network = by_network(own, children, mask);
    v.scatter(state, own + 0.1 * log_sum + 0.2 * network);
    v.push("log_sum", log_sum);
    v.push("largest", k_max_children(children, 3));
    v.push("dot", dot);
    v.push("network", network);
    v.loss(row_sum(square(log_sum)) + row_sum(square(k_max_children(children, 3))));
    v.loss(row_sum(dot * own) + row_sum(network * own));
  }
};

/// A vertex all of whose children are hidden attends to all alike.
TEST(Children, AreReducedAndAttendedToAsTheOracleDoes) {
  std::mt19937 random(first_seed());
  OnHost s;
  const ReducingCell cell(s.parameters);
  const VertexFunction function("cell", {.arity = any_arity}, [&](Vertex& v) { cell(v); });
  Oracle oracle(s.parameters, [&](OracleVertex& v) { cell(v); }, {.arity = any_arity});
  for (const bool in_place : {true, false}) {
    Runner runner(s.host, function, s.parameters, {.optimisations = {.in_place = in_place}});
    std::vector<GraphData> data;
    for (const std::int32_t vertices : {1, 9, 20}) {
      data.push_back(random_graph(vertices, any_arity, Form::dag, random));
      for (float& mask : data.back().edge_values["weight"]) mask = random() % 3 == 0 ? -1e30f : 0;
    }
    check_minibatch(runner, s.parameters, oracle, function, data);
  }
}

/// By the order of the edges, not of the vertices; and one child may stand in several places.
TEST(MaxChildren, OfEqualChildrenTheFirstGetsTheGradient) {
  OnHost s;
  const VertexFunction function("maxima", {.arity = any_arity}, [](Vertex& v) {
    const State state = v.state("h", 2);
    v.scatter(state, v.pull_row("rows", 2));
    v.loss(row_sum(mul_columns(max_children(v.each(state)), v.pull("weight", 1))));
  });
  Runner runner(s.host, function, s.parameters);
  const Tensor rows = s.tensor({1, 4, 3, 4, 3, -4, 0, 0}, 2);
  const auto gradient = [&](const Ints& children) {
    GraphData data = graph_of({{}, {}, {}, children});
    data.values["weight"] = {0, 0, 0, 5};
    const Graphs graphs(function, {data});
    return runner.differentiate(graphs.pointers, {{"rows", {rows}}}).gradient("rows").get();
  };
  EXPECT_EQ(gradient({0, 1, 2}), (Floats{0, 5, 5, 0, 0, 0, 0, 0}));
  EXPECT_EQ(gradient({2, 1, 0, 2}), (Floats{0, 0, 0, 5, 5, 0, 0, 0}));
}

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
    Ints all(static_cast<std::size_t>(words));
    std::iota(all.begin(), all.end(), 0);
    std::vector<Ints> children(static_cast<std::size_t>(words + questions));
    std::fill(children.begin() + words, children.end(), all);
    GraphData data = graph_of(children);
    for (std::int32_t v = 0; v < words + questions; ++v) {
      data.kinds.push_back(v < words ? 0 : 1);
      data.indices["number"].push_back(v % 5);
    }
    return data;
  }
};

constexpr Index state_width = 256, mega = 1'000'000;

TEST(Attention, TakesNoMemoryForAPairOfAQueryAndAKeyBeyondItsScore) {
  constexpr Index keys = 300, queries = 300, states = keys * 2 * state_width * 4;
  Reader reader(state_width);
  const VertexFunction function = reader.function();
  const Graphs graphs(function, {Reader::data(keys, queries)});
  Runner reading(reader.host, function, reader.parameters), training(reader.host, function, reader.parameters);
  reading.run(graphs.pointers).loss();
  training.differentiate(graphs.pointers).loss();
  EXPECT_LT(reading.stats().peak_bytes, states + 1 * mega);
  EXPECT_LT(training.stats().peak_bytes, states + 5 * mega);
}

TEST(Attention, ToChildrenAndTheVertexItselfTakesNoMemoryForAPair) {
  constexpr Index keys = 300, queries = 300, states = keys * 2 * state_width * 4;
  Reader reader(state_width);
  const VertexFunction function = reader.function([](const Expr& query, const Expr& key, const Expr& value) {
    return attend(DotAttention(), query, {key, query}, {value, query});
  });
  const Graphs graphs(function, {Reader::data(keys, queries)});
  Runner runner(reader.host, function, reader.parameters);
  runner.run(graphs.pointers).loss();
  EXPECT_LT(runner.stats().peak_bytes, states + 2 * mega);
}

/// A training needs the hidden rows for its gradients.
TEST(Attention, TakesNoMemoryForHiddenRowsInInference) {
  constexpr Index keys = 300, queries = 300, states = keys * 2 * state_width * 4;
  Reader reader(state_width);
  const VertexFunction function = reader.additive();
  const Graphs graphs(function, {Reader::data(keys, queries)});
  Runner runner(reader.host, function, reader.parameters),
      copied(reader.host, function, reader.parameters, {.optimisations = {.in_place = false}});
  const Minibatch here = runner.run(graphs.pointers), there = copied.run(graphs.pointers);
  const std::vector<float> found = here.output("found").get(), expected = there.output("found").get();
  expect_close({found.begin(), found.end()}, {expected.begin(), expected.end()}, 1e-5);
  EXPECT_LT(runner.stats().peak_bytes, states + 2 * mega);
  EXPECT_GT(copied.stats().peak_bytes, keys * queries * state_width * 4);
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
  GraphData data = graph_of({{}, {}, {0, 1}}, {1, 2, 3});
  data.kinds = {0, 0, 1};
  data.values["y"] = {1, 0, 1};
  expect_error<OpError>([&] { reader.computed(function, {data}).loss(); },
                        "the first such value on its way is of 'log' at sample 0, vertex 1");
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
  constexpr Index keys = 100, queries = 60, states = keys * 2 * state_width * 4;
  Reader reader(state_width);
  LazyGraph graph(reader.host, reader.parameters, {.use = LazyOptions::For::inference});
  const LazyCell additive = graph.cell("additive", [&](CellBody& cell) {
    const Expr query = cell.operand(state_width), key = cell.each(state_width);
    cell.result(reader.by_sums(query, key, cell.each(state_width)));
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
