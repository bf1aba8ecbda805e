// Rows of the gradient of a table, from a lookup in that table.
#pragma once

#include <cstdint>
#include <source_location>
#include <vector>

#include "windrow/batching/parameters.h"
#include "windrow/ops/tensor.h"

namespace windrow {

struct LookedUp {
  std::vector<std::int32_t> row_of;  ///< by row of `rows`: the row of the table, or -1 if nothing was looked up
  Tensor rows;
  std::source_location from;
  /// The index operands of op::sgd_rows for these rows, if the minibatch has them in the device's memory.
  std::vector<IntTensor> segments = {};
};

/// The rows without those that looked nothing up. Pushes the ops that make them.
Gradient::Rows gradient_rows(const Device& device, const LookedUp& looked_up);

}  // namespace windrow
