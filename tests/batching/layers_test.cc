// The operators of layers: in vertex functions and in lazy expressions as the oracle computes them.
#include <gtest/gtest.h>

#include "tests/batching/cells.h"
#include "tests/batching/check_minibatch.h"
#include "tests/batching/layers_cell.h"
#include "tests/seed.h"
#include "windrow/batching/lazy.h"

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
    data.child_begin.assign(vertices + 1, 0);
    std::uniform_real_distribution<float> uniform(-1, 1);
    data.values["x"].resize(vertices * LayersCell::in);
    for (float& value : data.values["x"]) value = uniform(random);
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
  GraphData data;
};

TEST_F(Layers, InVertexFunctionsAreAsTheOracleComputesThem) {
  SCOPED_TRACE("seed " + std::to_string(first_seed()));
  Runner runner(host, function, parameters);
  check_minibatch(runner, parameters, oracle, function, {data});
}

TEST_F(Layers, InLazyExpressionsAreAsInVertexFunctions) {
  SCOPED_TRACE("seed " + std::to_string(first_seed()));
  oracle.loss({data});
  const Graphs graphs(function, {data});
  Runner runner(host, function, parameters);
  runner.differentiate(graphs.pointers);
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
  Runner runner(host, f, parameters);
  const Graphs graphs(f, {GraphData{.child_begin = {0, 0}}});
  EXPECT_EQ(runner.differentiate(graphs.pointers).loss(), 2 * (9 + 9 + 3));
  EXPECT_EQ(dense(parameters, u), (Values(2, 3 - 0.5 * 6)));

  LazyGraph graph(host, parameters);
  const LazyExpr x = graph.parameter(u);
  graph.backward(std::array{row_sum(stop_gradient(x) * x + square(reverse_gradient(x, 0.5)) + stop_gradient(x))});
  EXPECT_EQ(dense(parameters, u), (Values(2, 3 - 0.5 * 6)));
}

}  // namespace
}  // namespace windrow::testing
