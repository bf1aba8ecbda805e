// Groups within a process: several devices of one or several engines.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <chrono>
#include <memory>
#include <vector>

#include "windrow/comm/communicator.h"

namespace windrow {

struct LocalGroupOptions {
  /// How long a call may wait for members that have not called, or whose tensors are not ready; see communicator.h.
  std::chrono::nanoseconds patience = std::chrono::minutes(10);
  /// After how long a call that waits for members logs one line that names them; again after twice as long, and so on
  /// up to `patience`.
  std::chrono::nanoseconds tell_after = std::chrono::seconds(30);
};

/// A group with a member for each device. The op of a call that becomes ready last combines the tensors of all members
/// in place; tensors in a device's memory are copied to the host's and back.
///
/// The tensors of different members must lie in different buffers. Ops that write one buffer run one after the other,
/// so members that share a buffer would wait for each other until the group breaks.
///
/// A handle of the communicators. Do not use it with EngineOptions::check: ops of one member write tensors of others,
/// which the check reports as an error.
class LocalGroup {
 public:
  /// Throws MisuseError without devices, and for times that are not positive.
  explicit LocalGroup(const std::vector<Device>& devices, LocalGroupOptions options = {});

  int size() const { return static_cast<int>(members_.size()); }
  /// Throws MisuseError for a rank that the group lacks.
  const Communicator& operator[](int rank) const;

 private:
  std::vector<Communicator> members_;
};

/// Devices that share the host: device i, "cpu:i", has threads of its own with policy per_device, kernels, and a new
/// pool of host memory.
std::vector<Device> host_devices(Engine& engine, int count);

}  // namespace windrow
