// How long a thread sleeps if it waits for the progress of other threads and polls, so that no thread has to wake it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace windrow {

/// The sleeps of one wait. Estimates the time until all work is done from the progress since the last look, and returns
/// half of it. So the thread wakes a few times, the last time at about that moment. Used by one thread; reads no clock.
class PollIntervals {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::nanoseconds shortest = std::chrono::microseconds(20),
                                            longest = std::chrono::milliseconds(1);

  /// How long to sleep from now on; `to_do` is the amount of work that is left. They get longer while there is no
  /// progress.
  std::chrono::nanoseconds next(std::uint64_t to_do, Clock::time_point now) {
    const auto since = std::chrono::duration<double, std::nano>(now - last_look_);
    std::chrono::nanoseconds nap = 2 * nap_;
    if (looked_ && to_do < to_do_) {
      const double estimate = since.count() * static_cast<double>(to_do) / static_cast<double>(to_do_ - to_do);
      nap = std::chrono::nanoseconds(static_cast<std::int64_t>(std::min(estimate / 2, 1e9)));
    }
    nap_ = looked_ ? std::clamp(nap, shortest, longest) : shortest;
    looked_ = true;
    to_do_ = to_do;
    last_look_ = now;
    return nap_;
  }

 private:
  bool looked_ = false;
  std::uint64_t to_do_ = 0;
  Clock::time_point last_look_;
  std::chrono::nanoseconds nap_ = shortest;
};

}  // namespace windrow
