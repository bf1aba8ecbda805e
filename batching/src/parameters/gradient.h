// Adds up the rows of lookups, for steps and for gradients as one tensor.
#pragma once

#include <optional>
#include <vector>

#include "layout/looked_up.h"
#include "windrow/batching/parameters.h"
#include "windrow/ops/apply.h"

namespace windrow {

/// The rows of all lookups in segments by row of the table: bounds and order (row_segments.h).
std::vector<IntTensor> by_table_row(const Device& device, const std::vector<LookedUp>& lookups,
                                    std::source_location from);

/// The operands of op::sgd_rows for a table of that shape: the rows of all lookups, in segments by row of the table.
Operands by_table_row(const Device& device, const std::vector<LookedUp>& lookups, const Type& table, double rate,
                      double decay, std::source_location from);

/// Pushes the ops that add up a gradient, its dense part and the rows of lookups, into a new tensor of that shape;
/// zeros without parts. The gradients of one table row are added up first, as in sgd().
Tensor dense(const Device& device, const std::optional<Tensor>& all, const std::vector<LookedUp>& lookups,
             const Type& shape, std::source_location from);

}  // namespace windrow
