// Measures the time of steps and counts their work, by operator: see StepTimes.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <vector>

#include "windrow/batching/backend/plan.h"
#include "windrow/batching/runner.h"

namespace windrow {

/// The times of one runner. Written by ops, read by any thread.
class StepClock {
 public:
  /// Times of steps of one kind. A list of them is searched from its start: plans have few.
  struct Sum {
    Step::Does does;
    Step::Counts counts;
    const Operator* op;
    OperatorTime time = {};
  };

  StepTimes times() const;

 private:
  friend class StepLap;

  mutable std::mutex mutex_;
  std::vector<Sum> sums_;  // guarded by the mutex
};

/// Measures the steps of one op: each step takes the time since the end of the previous one.
class StepLap {
 public:
  explicit StepLap(StepClock& clock) : clock_(clock), last_(std::chrono::steady_clock::now()) {}
  ~StepLap();
  StepLap(const StepLap&) = delete;
  StepLap& operator=(const StepLap&) = delete;

  /// Of a step over so many rows. `bytes`: as StepTimes counts them, 0 for products.
  void end_of(const Step& step, std::int64_t rows, std::int64_t bytes);

 private:
  StepClock& clock_;
  std::chrono::steady_clock::time_point last_;
  std::vector<StepClock::Sum> sums_;
};

}  // namespace windrow
