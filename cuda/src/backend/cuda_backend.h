// The back end of CUDA devices.
#pragma once

#include <memory>

#include "hardware.h"
#include "windrow/batching/backend.h"
#include "windrow/cuda/device.h"

namespace windrow::cuda {

/// Fuses what the compiler of the CUDA toolkit can compile; interprets plans if there is no compiler.
std::shared_ptr<const Backend> make_backend(std::shared_ptr<Hardware> hardware, const DeviceOptions& options);

}  // namespace windrow::cuda
