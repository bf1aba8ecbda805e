// Places of buffers in a block, found by best fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lifetimes.h"

namespace windrow {

/// A value.
struct Placement {
  std::vector<std::size_t> offsets;  // of Lifetimes::buffers
  std::size_t bytes = 0;
};

/// The best placement of several, in about `effort` comparisons of two buffers, and at least one. Ends early if it
/// finds one of `lower_bound` bytes.
Placement best_placement(const Lifetimes& lifetimes, std::size_t lower_bound, std::uint64_t effort);

}  // namespace windrow
