// Transposed copies of parameters, on the host, for gradients. Products with many rows are faster with a transposed
// copy; products with few rows take less time without it than making the copy would.
#pragma once

#include <vector>

#include "windrow/batching/internal/layout.h"
#include "windrow/batching/internal/plan.h"

namespace windrow {

/// Fills in Plan::copies and Step::without_copy.
void find_copies(Plan& plan, const KernelTable<float>& kernels);
/// By number of the tensor: whether the computation of the layout's vertices or of gradients of parameters reads it,
/// directly or through a tensor that is derived from parameters alone. A minibatch need not have vertices of all types
/// of the plan, and may make no copy. Depends on shapes only.
std::vector<char> needed_tensors(const Plan& plan, const Layout& layout);

}  // namespace windrow
