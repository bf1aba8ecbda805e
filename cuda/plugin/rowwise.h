// Reductions over the columns of a row, by all threads of a team.
#pragma once

#include <limits>

#include "team.h"

namespace windrow::cuda {

inline constexpr float lowest = -std::numeric_limits<float>::infinity();

/// The sum of value(column), in an order that the number of threads determines.
template <class Team, class Value>
WINDROW_ON_DEVICE float sum_of(Team& team, Index width, const Value& value) {
  auto sums = team.template values<float>();
  team.each([&](int thread) {
    float sum = 0;
    for (Index c = thread; c < width; c += team.threads()) sum += value(c);
    sums[thread] = sum;
  });
  return team.sum(sums);
}

/// The largest value(column), NaN if one is NaN; `lowest` if there are no columns.
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

}  // namespace windrow::cuda
