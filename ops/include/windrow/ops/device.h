// A device: where ops of tensors run, what memory they use, and by which kernels.
#pragma once

#include <memory>
#include <string>

#include "windrow/engine/engine.h"
#include "windrow/memory/allocator.h"
#include "windrow/ops/kernel.h"

namespace windrow {

/// A value that is cheap to copy. It may outlive the engine, and is of no use then. Add kernels of your own before the
/// device is used.
struct Device {
  std::string name = {};
  EngineRef engine;
  LaneId lane;
  std::shared_ptr<Allocator> memory = {};
  KernelTable<float> kernels;
};

/// The host, with its kernels and a pool of its own memory.
Device host_device(Engine& engine);

}  // namespace windrow
