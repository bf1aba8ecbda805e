#include "lane/lanes.h"

#include <algorithm>
#include <mutex>

#include "core/core.h"

namespace windrow {

bool LaneState::admit(OpRecord& op) {
  if (!ordered) return true;
  MutexLock lock(mutex_);
  if (taken_) {
    waiting_.put(op);
    return false;
  }
  taken_ = true;
  return true;
}

Point LaneState::record() {
  const Point point = ordered->record();
  MutexLock lock(mutex_);
  return last_ = point;
}

OpRecord* LaneState::release() {
  if (!ordered) return nullptr;
  MutexLock lock(mutex_);
  if (!waiting_.empty()) return &waiting_.take();
  taken_ = false;
  return nullptr;
}

Point LaneState::last() const {
  MutexLock lock(mutex_);
  return last_;
}

LaneState::Reached LaneState::reached() const {
  const Point last = this->last();
  if (!last) return {};
  std::uint64_t reached = 0, open = last.serial + 1;  // `reached` is reached, `open` is not
  if (ordered->reached(last)) return {last.serial, last.serial};
  while (open - reached > 1) {
    const std::uint64_t middle = reached + (open - reached) / 2;
    (ordered->reached({ordered.get(), middle}) ? reached : open) = middle;
  }
  return {reached, last.serial};
}

FailurePtr LaneState::failure(FailureLog& log, const std::exception_ptr& error) {
  MutexLock lock(mutex_);
  if (!failure_) failure_ = log.lane(host.name, error);
  return failure_;
}

std::size_t marks_before(const Dep::Access& access) {
  std::lock_guard lock(var_of(access).residue_lock);
  const Residue* residue = var_of(access).residue.get();
  if (residue == nullptr) return 0;
  return 1 + (access.writes() ? residue->readers.size() : 0);
}

std::optional<Mark> mark_before(const Dep::Access& access, std::size_t index) {
  std::lock_guard lock(var_of(access).residue_lock);
  const Residue& residue = *var_of(access).residue;
  return index == 0 ? residue.writer : residue.readers[index - 1];
}

void reserve_marks(OpRecord& op, std::size_t lanes) {
  for (Dep::Access& access : op.touches()) {
    auto fresh = std::make_unique<Residue>();
    std::lock_guard lock(var_of(access).residue_lock);
    auto& residue = var_of(access).residue;
    if (!residue) residue = std::move(fresh);
    residue->readers.reserve(lanes);
  }
}

void leave_mark(VarState& var, AccessKind kind, const Mark& mark) noexcept {
  Residue& residue = *var.residue;
  if (kind != AccessKind::read) {
    residue.writer = mark;
    residue.readers.clear();
    return;
  }
  const auto same_lane = std::find_if(residue.readers.begin(), residue.readers.end(),
                                      [&](const Mark& m) { return m.point.lane == mark.point.lane; });
  if (same_lane != residue.readers.end()) {
    *same_lane = mark;
  } else if (residue.readers.size() < residue.readers.capacity()) {
    residue.readers.push_back(mark);
  }
}

void clear_marks(VarState& var, AccessKind kind) {
  if (!var.residue) return;
  if (kind != AccessKind::read) {
    var.residue.reset();
  } else {
    var.residue->writer.reset();
  }
}

// ---- the engine's lanes ----

LaneState& Core::lane(LaneId id) {
  if (id == host_lane) return *host_;
  if (id.engine != number) throw MisuseError("PushOptions.lane names a lane of another engine");
  return lane_at(id.index);
}

LaneState& Core::lane_at(std::size_t index) {
  MutexLock lock(table_mutex_);
  return lanes_[index];
}

std::size_t Core::lanes() {
  MutexLock lock(table_mutex_);
  return lanes_.size();
}

LaneId Core::keep(LaneState& lane) {
  lane.core = this;
  return lane.id;
}

void Core::start(LaneState& lane) {
  if (life_ == Life::stopped) return;
  fork_gate_.pass();
  if (lane.lost) {
    throw MisuseError("lane '" + lane.host.name +
                      "' was made before a fork(), which its device does not survive; make a lane in the child");
  }
  policy_->start(lane);  // several threads may call this; if one fails, the next one tries again
  if (watchdog_) watchdog_->start();
  fork_gate_.if_open([&] { lane.started.store(true, std::memory_order_release); });
}

LaneId Core::add_lane(HostLane lane) {
  if (lane.threads < 1) {
    throw MisuseError("lane '" + lane.name + "' has threads = " + std::to_string(lane.threads) +
                      "; expected 1 or more");
  }
  MutexLock lock(table_mutex_);
  const LaneId id{number, static_cast<std::uint32_t>(lanes_.size())};
  return keep(lanes_.emplace_back(id, std::move(lane)));
}

LaneId Core::add_lane(std::shared_ptr<Lane> lane) {
  if (!lane) throw MisuseError("add_lane was given a null Lane");
  HostLane about{std::string(lane->name()), lane->device(), 1};
  MutexLock lock(table_mutex_);
  for (const LaneState& known : lanes_) {
    if (known.ordered == lane) throw MisuseError("lane '" + about.name + "' was added to this engine before");
  }
  const LaneId id{number, static_cast<std::uint32_t>(lanes_.size())};
  keep(lanes_.emplace_back(id, std::move(about), std::move(lane)));
  has_ordered_ = true;
  detours_ |= by_ordered_lanes;
  return id;
}

}  // namespace windrow
