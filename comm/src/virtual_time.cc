#include "windrow/comm/virtual_time.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>

namespace windrow {

bool VirtualClock::later(const Event& a, const Event& b) {
  return std::tie(a.time, a.phase, a.number) > std::tie(b.time, b.phase, b.number);
}

void VirtualClock::at(Time time, Phase phase, Function<void()> event) {
  events_.push_back({std::max(time, now_), phase, next_number_++, std::move(event)});
  std::ranges::push_heap(events_, later);
}

/// What is next happens, inside an op: the ops that become ready by it run when that op has ended.
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
  while (!events_.empty()) {
    engine_.push([this] { step(); }, {}, {.name = "clock"});
  }
  if (const std::uint64_t pending = engine_.stats().pending; pending != 0) {
    throw Error("VirtualClock: " + std::to_string(pending) + " ops are left that nothing ends\n" +
                engine_.describe_pending());
  }
  engine_.wait_all();
}

void VirtualLane::run(VirtualClock::Time duration, OnComplete done) {
  free_ = std::max(free_, clock_.now()) + duration;
  busy_ += duration;
  clock_.at(free_, VirtualClock::Phase::end, std::move(done));
}

}  // namespace windrow
