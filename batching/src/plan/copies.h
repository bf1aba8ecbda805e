// Transposed copies of parameters, for gradients: products with many rows are faster with a copy than with what was
// transposed, and products with few rows are done before the copy would be made.
#pragma once

#include "layout/layout.h"
#include "plan/plan.h"

namespace windrow {

/// Fills in Plan::copies and Step::direct.
void find_copies(Plan& plan, const KernelTable<float>& kernels);
/// Whether making the copy takes less than products do longer without it. By shapes alone.
bool pays(const Plan::Copy& copy, const Layout& layout);

}  // namespace windrow
