// The clock of traces: the processor's time-stamp counter, which takes some nanoseconds to read, and the conversion of
// its counts to nanoseconds. Processors without such a counter use the steady clock.
#pragma once

#include <chrono>
#include <cstdint>

namespace windrow {

using Ticks = std::uint64_t;

/// If a thread has seen a reading of another thread, its own next reading is not smaller.
inline Ticks now_in_ticks() {
#if defined(__x86_64__)
  __builtin_ia32_lfence();  // the processor may read the counter before earlier loads otherwise
  return __builtin_ia32_rdtsc();
#else
  return static_cast<Ticks>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

/// Both clocks at one moment.
struct ClockReading {
  Ticks ticks = 0;
  std::chrono::steady_clock::time_point time{};
  std::chrono::system_clock::time_point wall{};

  static ClockReading now() {
    const Ticks before = now_in_ticks();
    const auto time = std::chrono::steady_clock::now();
    return {before + (now_in_ticks() - before) / 2, time, std::chrono::system_clock::now()};
  }
};

/// Converts ticks to nanoseconds since the first of two readings, at the rate that follows from the two. Keeps order.
class TickScale {
 public:
  TickScale(const ClockReading& first, const ClockReading& second) : first_(first.ticks) {
    const std::chrono::duration<double, std::nano> time = second.time - first.time;
    if (second.ticks > first.ticks) rate_ = time.count() / static_cast<double>(second.ticks - first.ticks);
  }
  std::int64_t nanoseconds(Ticks at) const {
    return static_cast<std::int64_t>(rate_ * static_cast<double>(static_cast<std::int64_t>(at - first_)));
  }

 private:
  Ticks first_;
  double rate_ = 1;
};

}  // namespace windrow
