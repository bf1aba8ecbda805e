// What a minibatch needs of what is made of parameters alone, such as transposed copies: a plan serves minibatches with
// vertices of some of its types only.
#pragma once

#include <vector>

#include "layout/layout.h"
#include "plan/plan.h"

namespace windrow {

/// By number of the tensor: whether vertices that the layout has, or gradients of parameters, are computed with it, or
/// what it is made of is.
std::vector<char> needed_tensors(const Plan& plan, const Layout& layout);

}  // namespace windrow
