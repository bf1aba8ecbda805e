#include "policy/lane_workers.h"

namespace windrow {

LaneWorker::LaneWorker(LaneWorkers& of, Port&) : taker(of.queue_) {}

void LaneWorkers::add(OpRecord& op) noexcept {
  if (op.priority != 0) {
    by_priority_.put(op);
  } else if (!queue_.put(op)) [[unlikely]] {
    MutexLock lock(listed_mutex_);
    list(op);
  }
  rouse();
}

OpRecord* LaneWorkers::look_around(LaneWorker& worker, bool) {
  if (by_priority_.any_urgent()) {
    if (OpRecord* const op = by_priority_.take_urgent()) return op;
  }
  return by_priority_.take_turned(worker.takes, [&](bool) { return take_plain(worker); });
}

std::uint64_t LaneWorkers::ready() const {
  return by_priority_.size() + static_cast<std::uint64_t>(listed_count_) + queue_.size();
}

void LaneWorkers::list(OpRecord& op) {
  listed_.put(op);
  ++listed_count_;
}

OpRecord* LaneWorkers::take_listed() {
  MutexLock lock(listed_mutex_);
  if (listed_.empty()) return nullptr;
  --listed_count_;
  return &listed_.take();
}

OpRecord* LaneWorkers::take_listed(const Wanted& wanted, ReadyQueue::Search search) {
  MutexLock lock(listed_mutex_);
  // Limited to the present size: other threads may put as fast as this one takes.
  for (std::uint64_t left = queue_.size(); left > 0; --left) {
    OpRecord* const op = queue_.take();
    if (op == nullptr) break;
    list(*op);
  }
  OpRecord* const op = listed_.take_wanted(wanted, search);
  if (op != nullptr) --listed_count_;
  return op;
}

OpRecord* LaneWorkers::take_wanted(const Wanted& wanted) {
  if (by_priority_.any_urgent()) return nullptr;
  if (queue_.size() == 0 && listed_count_.load(std::memory_order_relaxed) == 0) return nullptr;
  OpRecord* const op = take_listed(wanted, ReadyQueue::Search::near);
  rouse();  // a thread that looked meanwhile found nothing
  return op;
}

OpRecord* LaneWorkers::take_wanted_anywhere(const Wanted& wanted) {
  OpRecord* op = take_listed(wanted, ReadyQueue::Search::all);
  if (op == nullptr) op = by_priority_.take_wanted(wanted);
  rouse();
  return op;
}

void LaneWorkers::each_mutex(EachMutex f) {
  Workers::each_mutex(f);
  f(listed_mutex_);
  by_priority_.each_mutex(f);
}

void LaneWorkers::forget_threads(Copied copied) noexcept {
  Workers::forget_threads(copied);
  if (copied == Copied::whole) queue_.forget_threads();
}

LaneCrew::LaneCrew(const RunningPolicy& policy, const PolicyContext& of, const LaneState& lane)
    : workers_(policy, of, counts_, lane.host) {
  if (lane.id == host_lane) urgent_.emplace(policy, of, urgent_counts_, workers_.by_priority_);
}

void LaneCrew::add(OpRecord& op) noexcept {
  const bool urgent = op.priority > 0;
  workers_.add(op);  // a worker may run the op at once, so it is not used below
  if (urgent && urgent_) urgent_->rouse();
}

void LaneCrew::stop() {
  if (urgent_) urgent_->stop();
  workers_.stop();
}

void LaneCrew::each_mutex(EachMutex f) {
  if (urgent_) urgent_->each_mutex(f);
  workers_.each_mutex(f);
}

void LaneCrew::forget_threads(Copied copied) noexcept {
  if (urgent_) urgent_->forget_threads(copied);
  workers_.forget_threads(copied);
}

LaneCrew* PerDevice::crew_from(std::uint32_t& lane) {
  MutexLock lock(mutex_);
  const auto found = crews_.lower_bound(lane);
  if (found == crews_.end()) return nullptr;
  lane = found->first;
  return &found->second;
}

void PerDevice::start(LaneState& lane) {
  MutexLock lock(mutex_);
  const auto [crew, is_new] = crews_.try_emplace(lane.id.index, *this, context_, lane);
  if (is_new) lane.crew = &crew->second;
  crew->second.start();
}

void PerDevice::stop() {
  for (std::uint32_t lane = 0; LaneCrew* crew = crew_from(lane); ++lane) crew->stop();  // joins: holds no lock
}

OpRecord* PerDevice::take_wanted_anywhere(const Wanted& wanted) {
  for (std::uint32_t lane = 0; LaneCrew* crew = crew_from(lane); ++lane) {
    if (OpRecord* const op = crew->workers().take_wanted_anywhere(wanted)) return op;
  }
  return nullptr;
}

int PerDevice::spares() const {
  MutexLock lock(mutex_);
  int sum = 0;
  for (const auto& [lane, crew] : crews_) sum += crew.spares();
  return sum;
}

std::uint64_t PerDevice::ready() const {
  MutexLock lock(mutex_);
  std::uint64_t sum = 0;
  for (const auto& [lane, crew] : crews_) sum += crew.workers().ready();
  return sum;
}

void PerDevice::each_mutex(EachMutex f) {
  f(mutex_, [&]() WINDROW_UNCHECKED_LOCKING {
    for (auto& [lane, crew] : crews_) crew.each_mutex(f);
  });
}

void PerDevice::forget_threads(Copied copied) noexcept {
  for (auto& [lane, crew] : crews_) crew.forget_threads(copied);
}

}  // namespace windrow
