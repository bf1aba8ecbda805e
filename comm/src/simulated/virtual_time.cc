#include "windrow/comm/internal/virtual_time.h"

#include <algorithm>
#include <exception>
#include <string>
#include <tuple>
#include <utility>

namespace windrow {

bool VirtualClock::later(const Event& a, const Event& b) {
  return std::tie(a.time, a.phase, a.number) > std::tie(b.time, b.phase, b.number);
}

void VirtualClock::at(Time time, Phase phase, Function<void()> event) {
  if (ended_) return event();
  events_.push_back({std::max(time, now_), phase, next_number_++, std::move(event)});
  std::ranges::push_heap(events_, later);
}

/// Runs the next event inside an op, so that ops that become ready by it run after that op has ended.
void VirtualClock::step() {
  const Time time = events_.front().time;
  const Phase phase = events_.front().phase;
  now_ = time;
  while (!events_.empty() && events_.front().time == time && events_.front().phase == phase) {
    std::ranges::pop_heap(events_, later);
    Function<void()> happens = std::move(events_.back().happens);
    events_.pop_back();
    happens();
  }
}

void VirtualClock::run() {
  run_until([] { return false; });
}

void VirtualClock::run_until(const std::function<bool()>& enough) {
  while (!enough()) {
    if (events_.empty()) return check_end();
    std::exception_ptr failure;
    const auto next = [&] {
      try {
        step();
      } catch (...) {
        failure = std::current_exception();
      }
    };
    engine_.push(next, {}, {.name = "clock"});
    if (failure) std::rethrow_exception(failure);
  }
}

void VirtualClock::check_end() {
  if (const std::uint64_t pending = engine_.stats().pending; pending != 0) {
    throw Error("VirtualClock: " + std::to_string(pending) + " ops are left that nothing ends\n" +
                engine_.describe_pending());
  }
  engine_.wait_all();
}

void VirtualClock::end() {
  if (std::exchange(ended_, true)) return;
  engine_.push([this] { all_happens(); }, {}, {.name = "end of the clock"});
}

/// Inside an op, as step().
void VirtualClock::all_happens() noexcept {
  for (Function<void()>& last : last_) last();
  last_.clear();
  for (Event& event : events_) {
    try {
      event.happens();
    } catch (const std::exception&) {  // an exception ended the run before
    }
    event.happens = nullptr;
  }
  events_.clear();
}

void VirtualLane::run(VirtualClock::Time duration, OnComplete done) {
  free_ = std::max(free_, clock_.now()) + duration;
  busy_ += duration;
  clock_.at(free_, VirtualClock::Phase::end, std::move(done));
}

}  // namespace windrow
