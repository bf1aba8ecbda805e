// Ready ops that have a priority, and their order relative to ops without one.
#pragma once

#include <atomic>

#include "policy/priority_queue.h"
#include "policy/running_policy.h"
#include "windrow/engine/internal/mutex.h"

namespace windrow {

/// The takes of one thread. Used only by that thread.
struct Takes {
  unsigned all = 0;
  unsigned turned = 0;  ///< takes in reverse order while ops of low priority were ready
};

/// Urgent ops (of positive priority) come first, background ops (of negative priority) last. Every `aging_takes`-th
/// take of a thread uses the reverse ("turned") order, so that no op waits for ever. Any thread may call the members.
class ByPriority {
 public:
  explicit ByPriority(SlotCounts& counts) : counts_(counts) {}

  /// Queues the op by its priority; an op without one counts as urgent.
  void put(OpRecord& op) noexcept WINDROW_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    (op.priority >= 0 ? urgent_ : background_).put(op);
    ++(op.priority >= 0 ? counts_.urgent : background_count_);
  }

  /// The next op, or null. `others(turned)` takes an op without priority; if `turned`, from all places in rotation.
  template <class Others>
  OpRecord* take(Takes& takes, Others&& others) {
    const bool turned = ++takes.all % aging_takes == 0;
    if (turned) return take_turned(takes, others);
    if (counts_.urgent.load(std::memory_order_relaxed) > 0) {
      if (OpRecord* const op = take_urgent()) return op;
    }
    if (OpRecord* const op = others(false)) return op;
    return take_rest();
  }
  /// As take(), but in reverse order.
  template <class Others>
  OpRecord* take_turned(Takes& takes, Others&& others) {
    // Alternate: the supplies of ops of low priority and of ops without priority may both be endless.
    if (background_count_.load(std::memory_order_relaxed) > 0 && ++takes.turned % 2 == 0) {
      if (OpRecord* const op = take_background()) return op;
    }
    if (OpRecord* const op = others(true)) return op;
    return take_rest();
  }
  /// Makes the next take of this thread use the reverse order.
  static void turn_next(Takes& takes) { takes.all |= aging_takes - 1; }

  OpRecord* take_urgent() WINDROW_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return taken(urgent_.empty() ? nullptr : &urgent_.take(), counts_.urgent);
  }
  OpRecord* take_wanted(const Wanted& wanted, PriorityQueue::Search search) WINDROW_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    OpRecord* const op = taken(urgent_.take_wanted(wanted, search), counts_.urgent);
    return op != nullptr ? op : taken(background_.take_wanted(wanted, search), background_count_);
  }

  bool any_urgent() const { return counts_.urgent.load(std::memory_order_seq_cst) > 0; }
  bool any() const { return any_urgent() || background_count_.load(std::memory_order_seq_cst) > 0; }
  std::uint64_t size() const { return static_cast<std::uint64_t>(counts_.urgent + background_count_); }

  void each_mutex(EachMutex f) { f(mutex_); }

 private:
  static constexpr unsigned aging_takes = 32;

  OpRecord* take_rest() {
    if (any_urgent()) {
      if (OpRecord* const op = take_urgent()) return op;
    }
    return background_count_.load(std::memory_order_seq_cst) > 0 ? take_background() : nullptr;
  }
  OpRecord* take_background() WINDROW_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return taken(background_.empty() ? nullptr : &background_.take(), background_count_);
  }
  static OpRecord* taken(OpRecord* op, std::atomic<int>& count) {
    if (op != nullptr) --count;
    return op;
  }

  SlotCounts& counts_;
  std::atomic<int> background_count_{0};

  alignas(64) Mutex mutex_;
  PriorityQueue urgent_ WINDROW_GUARDED_BY(mutex_);
  PriorityQueue background_ WINDROW_GUARDED_BY(mutex_);
};

}  // namespace windrow
