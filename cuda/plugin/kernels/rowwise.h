// Kernels with one team per row, and reductions over the columns of a row.
#pragma once

#include <cmath>

#include "plugin/kernel_call.h"

namespace windrow::cuda {

/// The sum of value(column), in an order that the number of threads determines.
template <class Team, class Value>
WINDROW_ON_DEVICE float sum_of(Team& team, Index width, const Value& value) {
  auto sums = team.template values<float>();
  team.each([&](int thread) {
    LongSum sum;
    for (Index c = thread; c < width; c += team.threads()) sum += value(c);
    sums[thread] = sum;
  });
  return team.sum(sums);
}

/// The mean of value(column). It averages differences from the first value, so the mean of equal values is exact.
template <class Team, class Value>
WINDROW_ON_DEVICE float mean_of(Team& team, Index width, const Value& value) {
  const float first = value(0);
  return first + sum_of(team, width, [&](Index c) { return value(c) - first; }) / static_cast<float>(width);
}

/// The largest value(column); NaN if one is NaN, `lowest` if there are no columns.
template <class Team, class Value>
WINDROW_ON_DEVICE float max_of(Team& team, Index width, const Value& value) {
  auto tops = team.template values<float>();
  team.each([&](int thread) {
    float top = lowest;
    for (Index c = thread; c < width; c += team.threads()) {
      const float next = value(c);
      if (top == top && !(next <= top)) top = next;
    }
    tops[thread] = top;
  });
  return team.max(tops);
}

/// The largest element of a row, and the sum of exp(element - largest).
struct ExpSum {
  float top, sum;
};
WINDROW_ON_DEVICE ExpSum exp_sum_of(auto& team, const In& x, Index r) {
  const float top = max_of(team, x.width, [&](Index c) { return at(x, r, c); });
  return {top, sum_of(team, x.width, [&](Index c) { return std::exp(at(x, r, c) - top); })};
}

/// Runs one team per row of the result. `Row` has a name and lists its accesses. All threads call row(team, r), which
/// returns a function of the column.
template <class Row>
struct EachRow {
  static constexpr const char* name = Row::name;
  Row row;
  Out out;
  bool add;

  WINDROW_ON_DEVICE void operator()(auto& team) const {
    for (Index r = team.index(); r < out.rows; r += team.count()) {
      const auto value = row(team, r);
      team.each([&](int thread) {
        for (Index c = thread; c < out.width; c += team.threads()) write(at(out, r, c), value(c), add);
      });
    }
  }
  void accesses(Accesses& to) const { to.all(row, out); }
};

template <class Row>
int run_rows(const Call& call, const Queue& queue, const Row& row) {
  const Index rows = call.out.width == 0 ? 0 : call.out.rows;
  return launch(queue, shape_for_rows(queue, rows, call.in[0].width), EachRow<Row>{row, call.out, adds(call)});
}
template <class Row>
int run_rows(const Call& call, const Queue& queue) {
  return run_rows(call, queue, made_from<Row>(call));
}
/// The table entry of a kernel whose name is that of its operator.
template <class Row>
constexpr KernelEntry row_by_row = {Row::name, run_rows<Row>};

}  // namespace windrow::cuda
