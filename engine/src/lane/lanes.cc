#include "lane/lanes.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "core/core.h"

namespace windrow {

bool LaneState::has_room() {
  if (last_.serial - known_reached_ < max_in_flight) return true;
  const std::uint64_t enough = last_.serial - max_in_flight + 1;
  if (!ordered->reached({ordered.get(), enough})) return false;
  known_reached_ = enough;
  return true;
}

bool LaneState::admit(OpRecord& op) {
  if (!ordered) return true;
  Point room;
  {
    MutexLock lock(mutex_);
    if (taken_) {
      waiting_.put(op);
      return false;
    }
    taken_ = true;
    if (op.after_end || has_room()) return true;
    waiting_.put(op);
    room = point_of_room();
  }
  resume_behind(room);
  return false;
}

Point LaneState::record() {
  const Point point = ordered->record();
  MutexLock lock(mutex_);
  return last_ = point;
}

OpRecord* LaneState::release(Room room) {
  if (!ordered) return nullptr;
  Point awaited;
  {
    MutexLock lock(mutex_);
    if (waiting_.empty()) {
      taken_ = false;
      return nullptr;
    }
    if (room == Room::ignore || has_room()) return &waiting_.take();
    awaited = point_of_room();
  }
  resume_behind(awaited);
  return nullptr;
}

void LaneState::resume_behind(Point point) {
  // An op waits here, so the engine does not end before the callback. The capture is one pointer, for which
  // std::function needs no memory.
  ordered->when_reached(point, [this](const std::exception_ptr&) { core->lanes.resume(*this); });
}

void LaneState::keep(OpRecord& op) noexcept {
  const std::uint64_t serial = op.kept().point;  // the op may end as soon as it is kept
  bool asks = false;
  {
    MutexLock lock(mutex_);
    (first_kept_ == nullptr ? first_kept_ : last_kept_->kept().next) = &op;
    last_kept_ = &op;
    asks = std::exchange(asks_for_kept_, true);
  }
  if (asks) {
    ordered->anticipate({ordered.get(), serial});
  } else {
    end_kept_behind(serial);
  }
}

OpRecord* LaneState::take_kept() noexcept {
  // One callback serves several ops.
  constexpr std::uint64_t most_at_once = 32;
  OpRecord *first = nullptr, *last = nullptr;
  std::uint64_t serial = 0;
  {
    MutexLock lock(mutex_);
    first = first_kept_;
    while (first_kept_ != nullptr && ordered->reached({ordered.get(), first_kept_->kept().point})) {
      last = first_kept_;
      first_kept_ = last->kept().next;
    }
    asks_for_kept_ = first_kept_ != nullptr;
    if (asks_for_kept_) {
      serial = std::max(first_kept_->kept().point,
                        std::min(first_kept_->kept().point + most_at_once, last_kept_->kept().point));
    }
  }
  if (last != nullptr) last->kept().next = nullptr;
  if (serial != 0) end_kept_behind(serial);
  return last != nullptr ? first : nullptr;
}

void LaneState::end_kept_behind(std::uint64_t serial) noexcept {
  // Kept ops count as pending, so the engine does not end before the callback. The capture is one pointer, for which
  // std::function needs no memory.
  ordered->when_reached({ordered.get(), serial}, [this](const std::exception_ptr&) { core->lanes.end_kept(*this); });
}

bool LaneState::close_if_idle() {
  MutexLock lock(mutex_);
  if (!taken_) closed = true;
  return closed;
}

MisuseError LaneState::removed_error() const {
  return MisuseError("lane '" + host.name + "' was removed from its engine; expected a lane that was not");
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

bool is_apart_from_lanes(OpRecord& op) {
  if (op.info().lane->ordered) return false;
  const auto is_marked = [](const Dep::Access& access) {
    return var_of(access).marked.load(std::memory_order_relaxed);
  };
  const std::span<Dep::Access> accesses = op.touches();
  return std::none_of(accesses.begin(), accesses.end(), is_marked);
}

void reserve_marks(OpRecord& op, std::size_t lanes) {
  for (Dep::Access& access : op.touches()) {
    auto& residue = var_of(access).residue;
    auto fresh = var_of(access).marked.load(std::memory_order_relaxed) ? nullptr : std::make_unique<Residue>();
    std::lock_guard lock(var_of(access).residue_lock);
    if (!residue) residue = fresh != nullptr ? std::move(fresh) : std::make_unique<Residue>();
    residue->readers.reserve(lanes);
    var_of(access).marked.store(true, std::memory_order_relaxed);
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

void drop_marks(VarState& var) {
  var.residue.reset();
  var.marked.store(false, std::memory_order_relaxed);
}

void clear_marks(VarState& var, AccessKind kind) {
  if (!var.residue) return;
  if (kind != AccessKind::read) {
    drop_marks(var);
  } else {
    var.residue->writer.reset();
  }
}

}  // namespace windrow
