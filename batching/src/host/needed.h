// Which tensors derived from parameters alone, such as transposed copies, a minibatch needs. A minibatch may have
// vertices of some of the plan's types only.
#pragma once

#include <vector>

#include "host/host_plan.h"
#include "windrow/batching/backend/layout.h"

namespace windrow {

/// By number of the tensor: whether the computation of the layout's vertices or of gradients of parameters reads it,
/// directly or through a derived tensor.
std::vector<char> needed_tensors(const Plan& plan, const HostPlan& lowered, const Layout& layout);

}  // namespace windrow
