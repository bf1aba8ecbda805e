// A cell whose vertices have children that are gathered by number, and beside them edges to two children each.
#pragma once

#include <algorithm>
#include <vector>

#include "tests/batching/cells.h"

namespace windrow::testing {

/// All states are gathered in both ways, and some edges have no relation. Maxima over edges: of values that lead to the
/// state, of inputs of edges, and of values that only the loss uses.
struct MixedCell {
  static constexpr std::size_t arity = any_arity, fixed = 2, per_edge = 2;
  static constexpr Index in = 2, h = 3;
  Parameter own, of_child, of_weight, relations, out;

  explicit MixedCell(Parameters& p)
      : own(p.add("own", in, h, Initial::uniform(-1, 1))),
        of_child(p.add("of_child", h, h, Initial::uniform(-1, 1))),
        of_weight(p.add("of_weight", in, h, Initial::uniform(-1, 1))),
        relations(p.add("relations", 3, h, Initial::uniform(-1, 1))),
        out(p.add("out", h, 1, Initial::uniform(-1, 1))) {}

  void operator()(auto& v) const {
    const auto h_of = v.state("h", h), c_of = v.state("c", 2);
    const auto x = v.pull("x", in), weight = v.pull_edge("weight", 2);
    const auto before = v.gather(0, h_of), other = v.gather(1, c_of);
    const auto left = v.each(h_of), right = v.each(h_of, 1), of_right = v.each(c_of, 1);
    const auto relation = embedding(relations, v.pull_edge_index("relation", Presence::sometimes));
    const auto score = sigmoid(row_sum(right * before + relation));
    const auto largest = max_children(matmul(left, of_child) + matmul(weight, of_weight) * tanh(matmul(x, own)));
    const auto value =
        tanh(matmul(x, own) + before + largest + sum_children(tanh(left * matmul(right, of_child)) * score) +
             matmul(max_children(weight), of_weight) + mean_children(left));
    v.scatter(h_of, value);
    v.scatter(c_of, tanh(other) * slice(value, 1, 3));
    v.push("largest", largest);
    v.push("right", max_children(right));
    v.loss(square(matmul(value, out)) + row_sum(max_children(square(left))) + row_sum(sum_children(of_right)));
  }

  /// Removes children of edges that are not whole.
  static void make_edges_whole(GraphData& data) {
    GraphData made = data;
    made.child_begin = {0};
    made.children.clear();
    made.edge_values["weight"].clear();
    made.edge_indices["relation"].clear();
    const auto& begin = data.child_begin;
    for (std::size_t v = 0; v + 1 < begin.size(); ++v) {
      auto count = static_cast<std::size_t>(begin[v + 1] - begin[v]);
      if (count > fixed) count -= (count - fixed) % per_edge;
      for (std::size_t k = 0; k < count; ++k) {
        const auto e = static_cast<std::size_t>(begin[v]) + k;
        const std::size_t first = k < fixed ? e : e - (k - fixed) % per_edge,
                          last = k < fixed ? e : first + per_edge - 1;
        const bool whole = data.children[first] != no_child && data.children[last] != no_child;
        made.children.push_back(whole ? data.children[e] : no_child);
        made.edge_indices["relation"].push_back(e % 3 == 0 ? -1 : data.edge_indices["relation"][e]);
        for (std::size_t i = 2 * e; i < 2 * e + 2; ++i) {
          made.edge_values["weight"].push_back(data.edge_values["weight"][i]);
        }
      }
      made.child_begin.push_back(static_cast<std::int32_t>(made.children.size()));
    }
    data = std::move(made);
  }
};

/// The shape of a cell's vertex function.
template <class Cell>
VertexFunction::Shape shape_of() {
  if constexpr (requires { Cell::per_edge; }) {
    return {.arity = any_arity, .fixed = Cell::fixed, .per_edge = Cell::per_edge};
  } else {
    return {.arity = Cell::arity};
  }
}

/// A random graph for a cell.
template <class Cell>
GraphData graph_for(std::int32_t vertices, Form form, std::mt19937& random) {
  GraphData data = random_graph(vertices, Cell::arity, form, random);
  if constexpr (std::is_same_v<Cell, Kinds>) Kinds::give_kinds(data);
  if constexpr (requires { Cell::per_edge; }) {
    static_assert(Cell::fixed == MixedCell::fixed && Cell::per_edge == MixedCell::per_edge);
    MixedCell::make_edges_whole(data);
  }
  return data;
}

}  // namespace windrow::testing
