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

void for_each_mark(OpRecord& op, const std::function<void(const Mark&, AccessKind)>& f) {
  for (Dep::Access& access : op.touches()) {
    std::vector<Mark> marks;
    {
      std::lock_guard lock(var_of(access).residue_lock);
      const Residue* residue = var_of(access).residue.get();
      if (residue == nullptr) continue;
      if (residue->writer) marks.push_back(*residue->writer);
      if (access.exclusive()) marks.insert(marks.end(), residue->readers.begin(), residue->readers.end());
    }
    for (const Mark& mark : marks) f(mark, access.kind());
  }
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

void leave_mark(VarState& var, AccessKind kind, const Mark& mark) {
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
  } else {
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
