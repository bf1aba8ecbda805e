// Reductions over children that are composed of others, attention to children, and whose gradient a maximum is.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/batching/check_minibatch.h"
#include "tests/batching/mixed_cell.h"
#include "tests/seed.h"
#include "windrow/models/layers.h"

namespace windrow::testing {
namespace {

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

using Floats = std::vector<float>;

/// A vertex all of whose children are hidden attends to all alike.
TEST(Children, AreReducedAndAttendedToAsTheOracleDoes) {
  SCOPED_TRACE("seed " + std::to_string(first_seed()));
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
  const Tensor rows(s.host, 4, 2);
  rows.set({1, 4, 3, 4, 3, -4, 0, 0});
  const auto gradient = [&](std::vector<std::int32_t> children) {
    const auto end = static_cast<std::int32_t>(children.size());
    GraphData data{.child_begin = {0, 0, 0, 0, end}, .children = std::move(children)};
    data.values["weight"] = {0, 0, 0, 5};
    const Graphs graphs(function, {data});
    return runner.differentiate(graphs.pointers, {{"rows", {rows}}}).gradient("rows").get();
  };
  EXPECT_EQ(gradient({0, 1, 2}), (Floats{0, 5, 5, 0, 0, 0, 0, 0}));
  EXPECT_EQ(gradient({2, 1, 0, 2}), (Floats{0, 0, 0, 5, 5, 0, 0, 0}));
}

}  // namespace
}  // namespace windrow::testing
