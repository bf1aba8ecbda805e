#include "lanes.h"

#include <algorithm>
#include <mutex>

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
  if (waiting_.has_next()) return &waiting_.take();
  taken_ = false;
  return nullptr;
}

Point LaneState::last() const {
  MutexLock lock(mutex_);
  return last_;
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
  return 1 + (access.exclusive() ? residue->readers.size() : 0);
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

}  // namespace windrow
