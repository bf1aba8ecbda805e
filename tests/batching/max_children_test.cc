// The maximum over children: whose it is, and who gets its gradient.
#include <gtest/gtest.h>

#include "tests/batching/cells.h"
#include "tests/engine/support.h"

namespace windrow {
namespace {

using testing::error_of;
using testing::Graphs;
using Floats = std::vector<float>;

/// Vertices that hand on a row of a tensor, and push the maximum over their children.
struct Maxima {
  Engine engine;
  const Device host = host_device(engine);
  Parameters parameters{host, 1};
  const VertexFunction function{"maxima", {.arity = any_arity}, [](Vertex& v) {
                                  const State state = v.state("h", 2);
                                  v.scatter(state, v.pull_row("rows", 2));
                                  const Expr largest = max_children(v.each(state));
                                  v.push("largest", largest);
                                  v.loss(row_sum(mul_columns(largest, v.pull("weight", 1))));
                                }};
  Runner runner{host, function, parameters};

  struct Result {
    Floats largest, gradient;
  };
  /// Of rows of two columns, the vertices' own; `weight` times the sum of its maxima is a vertex's loss.
  Result of(const std::vector<std::vector<std::int32_t>>& children, const Floats& rows, const Floats& weight) {
    GraphData data;
    for (const auto& of_vertex : children) {
      data.children.insert(data.children.end(), of_vertex.begin(), of_vertex.end());
      data.child_begin.push_back(static_cast<std::int32_t>(data.children.size()));
    }
    data.values["weight"] = weight;
    const Graphs graphs(function, {data});
    const Tensor given(host, static_cast<Index>(children.size()), 2);
    given.set(rows);
    const Minibatch minibatch = runner.differentiate(graphs.pointers, {{"rows", {given}}});
    return {minibatch.output("largest").get(), minibatch.gradient("rows").get()};
  }
};

TEST(MaxChildren, IsZeroWithoutChildrenAndTheChildsWithOne) {
  Maxima s;
  const auto alone = s.of({{}}, {-1, 2}, {5});
  EXPECT_EQ(alone.largest, (Floats{0, 0}));
  EXPECT_EQ(alone.gradient, (Floats{0, 0}));
  const auto one = s.of({{}, {0}}, {-1, 2, 7, 7}, {5, 3});
  EXPECT_EQ(one.largest, (Floats{0, 0, -1, 2}));
  EXPECT_EQ(one.gradient, (Floats{3, 3, 0, 0}));
}

TEST(MaxChildren, OfEqualChildrenTheFirstGetsTheGradient) {
  Maxima s;
  const auto result = s.of({{}, {}, {}, {0, 1, 2}}, {1, 4, 3, 4, 3, -4, 0, 0}, {0, 0, 0, 5});
  EXPECT_EQ(result.largest, (Floats{0, 0, 0, 0, 0, 0, 3, 4}));
  EXPECT_EQ(result.gradient, (Floats{0, 5, 5, 0, 0, 0, 0, 0}));
  // By the order of the edges, not of the vertices; and one child may stand in several places.
  const auto turned = s.of({{}, {}, {}, {2, 1, 0, 2}}, {1, 4, 3, 4, 3, -4, 0, 0}, {0, 0, 0, 5});
  EXPECT_EQ(turned.gradient, (Floats{0, 0, 0, 5, 5, 0, 0, 0}));
}

TEST(MaxChildren, AddsTheGradientsOfSeveralConsumers) {
  Maxima s;
  const auto result = s.of({{}, {}, {0, 1}, {1, 0}, {1}}, {1, 4, 3, 4, 0, 0, 0, 0, 0, 0}, {0, 0, 1, 10, 100});
  EXPECT_EQ(result.gradient, (Floats{0, 1, 111, 110, 0, 0, 0, 0, 0, 0}));
}

TEST(MaxChildren, OfManyChildrenIsFound) {
  Maxima s;
  constexpr std::int32_t leaves = 3000;
  std::mt19937 random(1);
  std::vector<std::vector<std::int32_t>> children(leaves);
  Floats rows, weight(leaves, 0), expected((leaves + 2) * 2, 0);
  for (std::int32_t i = 0; i < 2 * leaves; ++i) rows.push_back(static_cast<float>(random() % 100'000) - 200'000);
  for (std::int32_t of = 0; of < 2; ++of) {  // two halves
    auto& half = children.emplace_back();
    for (std::int32_t leaf = of; leaf < leaves; leaf += 2) half.push_back(leaf);
    rows.insert(rows.end(), {0, 0});
    weight.push_back(static_cast<float>(of + 1));
  }
  const auto result = s.of(children, rows, weight);
  for (std::size_t half = leaves; half < children.size(); ++half) {
    for (std::size_t c = 0; c < 2; ++c) {
      std::size_t first = static_cast<std::size_t>(children[half][0]);
      for (std::int32_t child : children[half]) {
        if (rows[2 * static_cast<std::size_t>(child) + c] > rows[2 * first + c])
          first = static_cast<std::size_t>(child);
      }
      EXPECT_EQ(result.largest[2 * half + c], rows[2 * first + c]);
      expected[2 * first + c] += weight[half];
    }
  }
  EXPECT_EQ(result.gradient, expected);
}

TEST(MaxChildren, IsOfEdgesOnly) {
  const std::string said = error_of<MisuseError>(
      [] { VertexFunction("cell", {.arity = any_arity}, [](Vertex& v) { max_children(v.pull("x", 2)); }); });
  EXPECT_EQ(said, "cell: a reduction over children of vertices x 2; expected a value of edges");
}

}  // namespace
}  // namespace windrow
