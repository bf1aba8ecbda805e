// Rows that a lookup left for the gradient of what it looked something up in.
#pragma once

#include <cstdint>
#include <source_location>
#include <vector>

#include "windrow/batching/parameters.h"
#include "windrow/ops/tensor.h"

namespace windrow {

struct LookedUp {
  std::vector<std::int32_t> row_of;  ///< of the table, for each of `rows`; -1 for one that looked nothing up
  Tensor rows;
  std::source_location from;
};

/// Without the rows that looked nothing up. Pushes the ops that make it.
Gradient::Rows gradient_rows(const Device& device, const LookedUp& looked_up);

}  // namespace windrow
