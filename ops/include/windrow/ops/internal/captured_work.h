// Lanes that can capture what ops issue, to issue it again by one call. A Static uses this for runs of operators.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <functional>
#include <memory>

namespace windrow {

/// Work of a lane, such as a CUDA graph. Kernels and copies in it have the addresses that they had when they were
/// captured. It may be destroyed while the lane still runs it. Threads: one at a time.
class CapturedWork {
 public:
  virtual ~CapturedWork() = default;
  /// Issues the work, in an op of the lane. Throws Error if that fails.
  virtual void issue() = 0;
};

/// A second interface that a Lane may implement.
class CapturingLane {
 public:
  /// In an op of the lane: captures what `work` issues on the lane, instead of issuing it. Null if there is no memory
  /// for that, or if nothing was issued. Throws what `work` throws, and Error if a call fails.
  virtual std::unique_ptr<CapturedWork> capture_work(const std::function<void()>& work) = 0;

 protected:
  ~CapturingLane() = default;
};

}  // namespace windrow
