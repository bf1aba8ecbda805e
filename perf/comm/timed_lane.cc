#include "comm/timed_lane.h"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace windrow::perf {

TimedLane::~TimedLane() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  timer_.join();
}

void TimedLane::issue(std::chrono::nanoseconds takes) {
  const std::lock_guard lock(mutex_);
  free_ = std::max(free_, Clock::now()) + takes;
}

Point TimedLane::record() noexcept {
  const std::lock_guard lock(mutex_);
  ends_.push_back(free_);
  changed_.notify_one();
  return {this, ++recorded_};
}

void TimedLane::when_reached(Point point, Reached callback) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (!reached(point)) return void(waiting_.emplace(point.serial, std::move(callback)));
  }
  callback(nullptr);
}

void TimedLane::serve() {
  ::prctl(PR_SET_TIMERSLACK, 1000);  // ns; 50 us by default
  ask_for_short_slices();
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !ends_.empty(); });
    if (ends_.empty()) return;
    const Clock::time_point end = ends_.front();
    ends_.pop_front();
    lock.unlock();
    std::this_thread::sleep_until(end);
    lock.lock();
    ++reached_;
    std::vector<Reached> due;
    for (; !waiting_.empty() && waiting_.begin()->first <= reached_; waiting_.erase(waiting_.begin())) {
      due.push_back(std::move(waiting_.begin()->second));
    }
    lock.unlock();
    for (const Reached& callback : due) callback(nullptr);
    lock.lock();
  }
}

void ask_for_short_slices() {
  // As in sched_setattr(2); headers of older systems lack it.
  struct {
    std::uint32_t size = 48, policy = 0;
    std::uint64_t flags = 0;
    std::int32_t nice = 0;
    std::uint32_t priority = 0;
    std::uint64_t runtime = 100'000, deadline = 0, period = 0;  // ns; 100 us is the least
  } attributes;
  ::syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace windrow::perf
