// Adding up a gradient into one tensor.
#pragma once

#include "windrow/batching/parameters.h"

namespace windrow {

/// Pushes the ops that add up the parts of the gradient into a new tensor of that shape; zeros without parts.
Tensor dense(const Device& device, const Gradient& gradient, const Type& shape, std::source_location from);

}  // namespace windrow
