// A cell that attends to its children: states that are read where they were computed.
#pragma once

#include "tests/batching/mixed_cell.h"

namespace windrow::testing {

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

}  // namespace windrow::testing
