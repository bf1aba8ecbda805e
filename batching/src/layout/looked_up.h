// Rows of the gradient of a table, from a lookup in that table.
#pragma once

#include <cstdint>
#include <source_location>
#include <vector>

#include "windrow/batching/parameters.h"
#include "windrow/ops/tensor.h"

namespace windrow {

struct LookedUp {
  /// By row of `rows`: the table rows that were looked up and added; equally many for each row, -1 for none.
  std::vector<std::int32_t> row_of;
  Tensor rows;
  std::source_location from;
  /// The index operands of op::sgd_rows for these rows, if the minibatch has them in the device's memory.
  std::vector<IntTensor> segments = {};

  /// How many numbers row_of has for each row.
  std::size_t each() const { return rows.rows() == 0 ? 1 : row_of.size() / static_cast<std::size_t>(rows.rows()); }
};

}  // namespace windrow
