// Measures the time of steps and counts their work, by operator: see StepTimes.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string_view>

#include "windrow/batching/internal/plan.h"
#include "windrow/batching/runner.h"

namespace windrow {

/// The name of the operator or the move.
std::string_view name_of(const Step& step);

/// The times of one runner. Written by ops, read by any thread.
class StepClock {
 public:
  StepTimes times() const {
    const std::lock_guard lock(mutex_);
    return times_;
  }

 private:
  friend class StepLap;

  mutable std::mutex mutex_;
  StepTimes times_;  // guarded by the mutex
};

/// Measures the steps of one op: each step takes the time since the end of the previous one.
class StepLap {
 public:
  explicit StepLap(StepClock& clock) : clock_(clock), last_(std::chrono::steady_clock::now()) {}
  ~StepLap();
  StepLap(const StepLap&) = delete;
  StepLap& operator=(const StepLap&) = delete;

  /// Ends a step over this many rows. `bytes` are counted as in StepTimes; 0 for products.
  void end_of(const Step& step, std::int64_t rows, std::int64_t bytes);

 private:
  StepClock& clock_;
  std::chrono::steady_clock::time_point last_;
  StepTimes times_ = {};
};

}  // namespace windrow
