// Shared by tests of groups by NCCL, which run on the fake runtime and its fake NCCL.
#pragma once

#include <cstdlib>
#include <vector>

#include "tests/comm/contract.h"
#include "tests/cuda/fake/nccl.h"
#include "tests/cuda/support.h"
#include "windrow/comm/nccl.h"

namespace windrow::testing {

/// Makes the library open the plug-in that is linked with the fake NCCL.
inline const bool uses_fake_nccl = ::setenv("WINDROW_NCCL_PLUGIN", WINDROW_FAKE_NCCL, 1) == 0;

inline std::vector<Device> cuda_devices(Engine& engine, int count) {
  std::vector<Device> devices;
  for (int number = 0; number < count; ++number) devices.push_back(cuda::open_device(engine, number).device);
  return devices;
}

}  // namespace windrow::testing
