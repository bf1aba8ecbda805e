// Measures the time of steps and counts their bytes, by category: see StepTimes.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "windrow/batching/backend/plan.h"
#include "windrow/batching/runner.h"

namespace windrow {

/// The times of one runner. Written by ops, read by any thread. Relaxed: the sums order no other memory.
class StepClock {
 public:
  /// Measures the steps of one op: each step takes the time since the end of the previous one.
  class Lap {
   public:
    explicit Lap(StepClock& clock) : clock_(clock), last_(Clock::now()) {}
    ~Lap() {
      for (std::size_t i = 0; i < ns_.size(); ++i) {
        clock_.ns_[i].fetch_add(ns_[i], std::memory_order_relaxed);
        clock_.bytes_[i].fetch_add(bytes_[i], std::memory_order_relaxed);
      }
    }
    Lap(const Lap&) = delete;
    Lap& operator=(const Lap&) = delete;

    void end_of(const Step& step, std::int64_t bytes) {
      const Clock::time_point now = Clock::now();
      ns_[static_cast<std::size_t>(step.counts)] += std::chrono::nanoseconds(now - last_).count();
      bytes_[static_cast<std::size_t>(step.counts)] += bytes;
      last_ = now;
    }

   private:
    StepClock& clock_;
    std::chrono::steady_clock::time_point last_;
    std::array<std::int64_t, 3> ns_{}, bytes_{};
  };

  StepTimes times() const {
    const auto of = [](const Sums& sums, Step::Counts counts) {
      return sums[static_cast<std::size_t>(counts)].load(std::memory_order_relaxed);
    };
    return {of(ns_, Step::Counts::product), of(ns_, Step::Counts::arithmetic), of(ns_, Step::Counts::move),
            of(bytes_, Step::Counts::arithmetic), of(bytes_, Step::Counts::move)};
  }

 private:
  using Clock = std::chrono::steady_clock;

  using Sums = std::array<std::atomic<std::int64_t>, 3>;  // by Step::Counts

  Sums ns_{}, bytes_{};
};

}  // namespace windrow
