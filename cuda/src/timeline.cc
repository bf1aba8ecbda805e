#include "timeline.h"

#include <new>
#include <utility>

#include "hardware.h"

namespace windrow::cuda {
namespace {

using Clock = std::chrono::steady_clock;

/// Finished work is collected when this many pieces are open.
constexpr std::size_t many_open = 256;
/// Elapsed times are floats, so they are measured from an event at most this much earlier.
constexpr float longest_ms = 1000;

Clock::duration duration_of(float milliseconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double, std::milli>(milliseconds));
}

}  // namespace

Timeline::~Timeline() {
  give_up();
  for (Event* const event : free_) cuda_.end_event(event);
}

void Timeline::start(std::uint64_t most) noexcept try {
  const OnThread here(cuda_, device_);
  std::lock_guard lock(mutex_);
  give_up();
  done_.clear();
  room_ = most;
  free_.reserve(2);
  while (free_.size() < 2) {
    Event* made = nullptr;
    if (cuda_.make_clock(&made) != success) return give_up();
    free_.push_back(made);
  }
  // An event lies between two readings of the host's clock, which are close unless the thread was interrupted. The
  // closest pair of a few counts.
  Clock::duration closest = Clock::duration::max();
  for (int trial = 0; trial < 5 && closest > std::chrono::microseconds(100); ++trial) {
    const Clock::time_point before = Clock::now();
    if (cuda_.record_now(free_.back()) != success) return give_up();
    const Clock::duration between = Clock::now() - before;
    if (between >= closest) continue;
    closest = between;
    origin_time_ = before + between / 2;
    if (origin_ == nullptr) {
      origin_ = free_.back();
      free_.pop_back();
    } else {
      std::swap(origin_, free_.back());
    }
  }
  cuda_.take_error();  // drops an error of the stream that record_now() destroyed
  on_ = true;
} catch (const std::bad_alloc&) {
}

void Timeline::begin(Queue* queue, const char* work) noexcept try {
  std::lock_guard lock(mutex_);
  if (room_ == 0 || origin_ == nullptr) return;
  --room_;
  open_.push_back({work, nullptr, nullptr});
  Event* const event = record(queue);
  if (event != nullptr) open_.back().begin = event;
} catch (const std::bad_alloc&) {
}

void Timeline::end(Queue* queue) noexcept try {
  std::lock_guard lock(mutex_);
  if (open_.empty() || open_.back().end != nullptr) return;
  Event* const event = record(queue);
  if (event == nullptr) return;
  open_.back().end = event;
  if (open_.size() % many_open == 0) collect();
} catch (const std::bad_alloc&) {
}

std::vector<DeviceWork> Timeline::read() {
  const OnThread here(cuda_, device_);
  std::lock_guard lock(mutex_);
  collect();
  return done_;
}

Event* Timeline::record(Queue* queue) {
  Event* event = nullptr;
  if (!free_.empty()) {
    event = free_.back();
    free_.pop_back();
  } else if (cuda_.make_clock(&event) != success) {
    give_up();
    return nullptr;
  }
  if (cuda_.record(event, queue) == success) return event;
  cuda_.end_event(event);
  give_up();
  return nullptr;
}

void Timeline::collect() {
  while (!open_.empty() && open_.front().end != nullptr) {
    const Open& first = open_.front();
    const int error = cuda_.query(first.end);
    if (error == not_ready) return;
    float until_begin = 0, length = 0;
    if (error != success || cuda_.elapsed(origin_, first.begin, &until_begin) != success ||
        cuda_.elapsed(first.begin, first.end, &length) != success) {
      return give_up();
    }
    free_.reserve(free_.size() + 2);
    const Clock::time_point begin = origin_time_ + duration_of(until_begin);
    done_.push_back({first.name, begin, begin + duration_of(length)});
    const bool far = until_begin > longest_ms;
    if (far) origin_time_ = begin;
    free_.push_back(first.end);
    free_.push_back(far ? std::exchange(origin_, first.begin) : first.begin);
    open_.pop_front();
  }
}

/// Events that are not reached are not reused.
void Timeline::give_up() noexcept {
  on_ = false;
  for (const Open& open : open_) {
    if (open.begin != nullptr) cuda_.end_event(open.begin);
    if (open.end != nullptr) cuda_.end_event(open.end);
  }
  open_.clear();
  if (origin_ != nullptr) cuda_.end_event(std::exchange(origin_, nullptr));
  cuda_.take_error();  // not an error of an op
}

}  // namespace windrow::cuda
