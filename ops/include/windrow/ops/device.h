// A device: the lane, memory and kernels of tensor ops.
//
// On the host, ops run on host threads. Another device has an ordered lane, on which its kernels and copies are issued,
// and memory that belongs to this lane (see Allocator).
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <memory>
#include <optional>
#include <string>

#include "windrow/engine/engine.h"
#include "windrow/memory/allocator.h"
#include "windrow/ops/kernel.h"

namespace windrow {

class Backend;  // windrow/batching/backend.h

/// A value that is cheap to copy. It may outlive the engine, but cannot be used then. Add your own kernels before the
/// device is used.
struct Device {
  std::string name = {};
  EngineRef engine;
  LaneId lane;
  /// Another lane, for copies to the host for which threads wait. They then wait only for the ops that wrote the
  /// values, not for ops that were pushed later.
  std::optional<LaneId> copy_out = {};
  std::shared_ptr<Allocator> memory = {};
  KernelTable<float> kernels;
  /// How it computes minibatches of vertices; null for the back end that backend_of() chooses.
  std::shared_ptr<const Backend> backend = {};
  /// The stride, in elements, of the rows of a new tensor of this width.
  Index (*row_stride)(Index width) = windrow::row_stride;
  /// Another ordered lane, for collectives between devices.
  std::optional<LaneId> collectives = {};
  /// The queue of the platform behind an ordered lane of the device, such as a cudaStream_t, for libraries that issue
  /// work on it; null if there is none.
  void* (*native_queue)(Lane* lane) = nullptr;

  bool on_host() const { return memory == nullptr || memory->on_host(); }
  /// The lane of buffers in its memory; see Buffer.
  LaneId memory_lane() const { return on_host() ? host_lane : lane; }
  /// Whether its kernels may access the tensor: it lies in the host's memory if this is the host, and otherwise in the
  /// memory of the device's lane.
  template <class AnyTensor>
  bool holds(const AnyTensor& tensor) const {
    return tensor.lane() == memory_lane();
  }
};

/// The host: its lane, its kernels, and a new pool of host memory, which takes at most `memory_limit` bytes. With
/// EngineOptions::check, the pool takes whole pages, so that undeclared reads of tensors are detected. The engine's
/// traces show the bytes that are live and cached. An op that needs more memory waits for other threads to free some,
/// at most a tenth of a second; then it fails with OutOfMemory.
Device host_device(Engine& engine, std::size_t memory_limit = unlimited);

/// Adds two tracks to the traces of the device's engine: the bytes of its memory that are live, and those cached. For
/// whoever makes a device.
void trace_memory(const Device& device);

}  // namespace windrow
