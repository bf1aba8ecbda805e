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
  return {this, reached_ + ends_.size()};
}

bool TimedLane::reached(Point point) const noexcept {
  const std::lock_guard lock(mutex_);
  note_reached();
  return point.serial <= reached_;
}

void TimedLane::when_reached(Point point, Reached callback) noexcept {
  {
    const std::lock_guard lock(mutex_);
    note_reached();
    if (point.serial > reached_) {
      const bool is_first = waiting_.empty() || point.serial < waiting_.begin()->first;
      waiting_.emplace(point.serial, std::move(callback));
      if (is_first) changed_.notify_one();
      return;
    }
  }
  callback(nullptr);
}

void TimedLane::note_reached() const {
  for (const Clock::time_point now = Clock::now(); !ends_.empty() && ends_.front() <= now; ends_.pop_front()) {
    ++reached_;
  }
}

void TimedLane::serve() {
  ::prctl(PR_SET_TIMERSLACK, 1000);  // ns; 50 us by default
  ask_for_short_slices();
  std::unique_lock lock(mutex_);
  for (;;) {
    std::vector<Reached> due;
    note_reached();
    for (; !waiting_.empty() && waiting_.begin()->first <= reached_; waiting_.erase(waiting_.begin())) {
      due.push_back(std::move(waiting_.begin()->second));
    }
    if (!due.empty()) {
      lock.unlock();
      for (const Reached& callback : due) callback(nullptr);
      lock.lock();
    } else if (!waiting_.empty()) {
      const Clock::time_point end = ends_[waiting_.begin()->first - reached_ - 1];  // others remove what has passed
      changed_.wait_until(lock, end);
    } else if (stopping_) {
      return;
    } else {
      changed_.wait(lock);
    }
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
