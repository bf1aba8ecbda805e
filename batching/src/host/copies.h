// Transposed copies of parameters, for gradients. Products with many rows are faster with a transposed copy; products
// with few rows take less time without it than making the copy would.
#pragma once

#include "host/host_plan.h"
#include "windrow/batching/backend/layout.h"

namespace windrow {

/// Fills in HostPlan::copies and HostStep::direct.
void find_copies(const Plan& plan, HostPlan& lowered, const KernelTable<float>& kernels);
/// Whether making the copy costs less time than the products lose without it. Depends on shapes only.
bool pays(const HostPlan::Copy& copy, const Layout& layout);

}  // namespace windrow
