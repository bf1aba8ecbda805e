// The kernels of the plug-in as a table of kernels.
#pragma once

#include "windrow/ops/kernel.h"

namespace windrow::cuda {

/// For all operators of operators.h.
const KernelTable<float>& kernels();

}  // namespace windrow::cuda
