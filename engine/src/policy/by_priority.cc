#include "policy/by_priority.h"

namespace windrow {

void ByPriority::put(OpRecord& op) noexcept {
  MutexLock lock(mutex_);
  if (op.priority >= 0) {
    urgent_.put(op);
    ++counts_.urgent;
  } else {
    background_.put(op);
    ++background_count_;
  }
}

OpRecord* ByPriority::take_urgent() {
  MutexLock lock(mutex_);
  if (urgent_.empty()) return nullptr;
  --counts_.urgent;
  return &urgent_.take();
}

OpRecord* ByPriority::take_background() {
  MutexLock lock(mutex_);
  if (background_.empty()) return nullptr;
  --background_count_;
  return &background_.take();
}

OpRecord* ByPriority::take_wanted(const Wanted& wanted) {
  MutexLock lock(mutex_);
  if (OpRecord* const op = urgent_.take_wanted(wanted, ReadyQueue::Search::all)) {
    --counts_.urgent;
    return op;
  }
  OpRecord* const op = background_.take_wanted(wanted, ReadyQueue::Search::all);
  if (op != nullptr) --background_count_;
  return op;
}

}  // namespace windrow
