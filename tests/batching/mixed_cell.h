// Cells whose vertices have children that are gathered by number, and beside them edges to two children each.
#pragma once

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

/// Two heads have their columns of one state; what they find determines what consumers read, so gradients pass through
/// all levels. The states are results, an input, and the state of another vertex that is handed on. One is also
/// gathered by number, one is added to a row of the vertex, and one only leads to losses. Some edges are hidden.
struct AttendingCell {
  static constexpr std::size_t arity = any_arity, fixed = 2, per_edge = 2;
  static constexpr Index in = 2, h = 3;
  Parameter own, queries, of_found, out;

  explicit AttendingCell(Parameters& p)
      : own(p.add("own", in, 2 * h, Initial::uniform(-1, 1))),
        queries(p.add("queries", in, 2 * h, Initial::uniform(-1, 1))),
        of_found(p.add("of_found", 2 * h, 2 * h, Initial::uniform(-1, 1))),
        out(p.add("out", h, 1, Initial::uniform(-1, 1))) {}

  void operator()(auto& v) const {
    const auto heads = v.state("heads", 2 * h), values = v.state("values", h), given = v.state("given", in),
               handed_on = v.state("handed on", h), aside = v.state("aside", h), projected = v.state("projected", h);
    const auto x = v.pull("x", in), weight = v.pull_edge("weight", 2);
    const auto keys = v.each(heads), read = v.each(values, 1);
    const auto query = tanh(matmul(x, queries) + v.gather(0, heads));
    const auto mask = -20.0 * relu(slice(weight, 0, 1));
    const auto first = softmax_children(row_dot(slice(keys, 0, h), slice(query, 0, h)) + mask);
    const auto second = softmax_children(row_dot(slice(query, h, 2 * h), slice(keys, h, 2 * h)));
    const auto found = concat(sum_children(read * first), sum_children(read * second + read * slice(weight, 1, 2)));
    const auto of_given = sum_children(v.each(given) * row_dot(v.each(given), x));
    const auto before = v.each(handed_on, 1);
    const auto result = tanh(matmul(x + of_given, own) + matmul(found, of_found));
    v.scatter(heads, result);
    v.scatter(values, slice(result, 1, 1 + h));
    v.scatter(given, x);
    v.scatter(handed_on, v.gather(1, values));
    v.scatter(aside, square(slice(result, 0, h)));
    v.scatter(projected, slice(result, h, 2 * h));
    const auto hidden = tanh(v.each(projected, 1) + slice(query, 0, h));
    v.push("found", found);
    v.push("added", sum_children(read * softmax_children(matmul(hidden, out) + mask)));
    v.loss(row_sum(sum_children(matmul(hidden, out))));
    v.loss(square(matmul(slice(result, 0, h), out)) +
           row_dot(sum_children(before * row_dot(before, found_of(x))), found_of(x)));
    v.loss(row_sum(sum_children(v.each(aside) * sigmoid(row_dot(v.each(aside), slice(result, h, 2 * h))))));
  }

 private:
  static auto found_of(const auto& x) { return concat(x, row_sum(x)); }
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
