// Transposed copies of parameters, for gradients. Products with many rows are faster with a transposed copy; products
// with few rows take less time without it than making the copy would.
#pragma once

#include "layout/layout.h"
#include "plan/plan.h"

namespace windrow {

/// Fills in Plan::copies and Step::direct.
void find_copies(Plan& plan, const KernelTable<float>& kernels);
/// Whether making the copy costs less time than the products lose without it. Depends on shapes only.
bool pays(const Plan::Copy& copy, const Layout& layout);

}  // namespace windrow
