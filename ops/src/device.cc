#include "windrow/ops/device.h"

#include "windrow/memory/pool.h"

namespace windrow {

Device host_device(Engine& engine) {
  return {.name = "host",
          .engine = engine,
          .lane = host_lane,
          .memory = std::make_shared<Pool>(host_allocator()),
          .kernels = host_kernels()};
}

}  // namespace windrow
