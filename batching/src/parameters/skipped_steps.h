// The decision to skip a step, and the log of skipped steps.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "run/owned_var.h"
#include "windrow/batching/parameters.h"
#include "windrow/engine/internal/mutex.h"
#include "windrow/memory/buffer.h"
#include "windrow/ops/device.h"

namespace windrow {

/// Shared by the ops of one step: the first op decides, the others read the decision.
struct StepCheck {
  explicit StepCheck(const Device& device) : decided(owned_var(device.engine, "step")) {}

  const Buffer decided;  ///< no bytes; the op that decides writes its variable
  bool skip = false;     ///< guarded by the variable of `decided`
  std::string own = {};  ///< in a group: why this member skips the step, or empty; used by the ops that decide
};

/// Written by ops, read by any thread.
class SkipLog {
 public:
  /// Steps along one gradient only read it, so their checks may run in any order.
  void add(SkippedStep step) WINDROW_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    ++steps_.count;
    const auto place = std::ranges::upper_bound(steps_.last, step.step, {}, &SkippedStep::step);
    steps_.last.insert(place, std::move(step));
    if (steps_.last.size() > SkippedSteps::most_reported) steps_.last.erase(steps_.last.begin());
  }
  SkippedSteps steps() const WINDROW_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return steps_;
  }

 private:
  mutable Mutex mutex_;
  SkippedSteps steps_ WINDROW_GUARDED_BY(mutex_);
};

}  // namespace windrow
