// A device whose ops take fixed times without a processor: a stand-in for an accelerator.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "windrow/engine/lane.h"

namespace windrow::perf {

/// An ordered lane, as a CUDA stream is: ops issue work ahead, and its times follow each other without gaps. A timer
/// wakes up for the points that someone waits for, and for no others: it runs on the cores that move data.
class TimedLane final : public Lane {
 public:
  TimedLane() : timer_([this] { serve(); }) {}
  ~TimedLane() override;
  TimedLane(const TimedLane&) = delete;
  TimedLane& operator=(const TimedLane&) = delete;

  /// Issues work. Called by ops of the lane.
  void issue(std::chrono::nanoseconds takes);

  std::string_view name() const override { return "timed"; }
  int device() const override { return 1; }
  Point record() noexcept override;
  bool reached(Point point) const noexcept override;
  bool can_wait_for(const Lane&) const noexcept override { return false; }
  void wait(Point, IfFailed) noexcept override {}  // never called
  void when_reached(Point point, Reached callback) noexcept override;

 private:
  using Clock = std::chrono::steady_clock;
  void serve();
  /// With mutex_ locked.
  void note_reached() const;

  mutable std::mutex mutex_;  // guards the following
  std::condition_variable changed_;
  Clock::time_point free_{};                    // when all issued work has ended
  mutable std::deque<Clock::time_point> ends_;  // of the points behind reached_
  mutable std::uint64_t reached_ = 0;
  std::multimap<std::uint64_t, Reached> waiting_;
  bool stopping_ = false;
  std::thread timer_;  // the last member: it uses the others
};

/// Asks the system for the shortest time slices for the calling thread, so that it gets a core soon when it wakes up.
/// Linux 6.12 and later do so; others ignore it. For threads that stand in for a device: with the usual slices of 3 ms,
/// the threads that move data, which compute all the time, keep the cores for longer than an op of the device takes.
void ask_for_short_slices();

}  // namespace windrow::perf
