// A device: the lane, memory and kernels of tensor ops.
#pragma once

#include <memory>
#include <string>

#include "windrow/engine/engine.h"
#include "windrow/memory/allocator.h"
#include "windrow/ops/kernel.h"

namespace windrow {

/// A value that is cheap to copy. It may outlive the engine, but is of no use then. Add your own kernels before the
/// device is used.
struct Device {
  std::string name = {};
  EngineRef engine;
  LaneId lane;
  std::shared_ptr<Allocator> memory = {};
  KernelTable<float> kernels;
};

/// The host: its lane, its kernels, and a new pool of host memory.
Device host_device(Engine& engine);

}  // namespace windrow
