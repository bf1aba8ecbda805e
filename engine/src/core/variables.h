// The variables of one engine.
#pragma once

#include <deque>
#include <vector>

#include "process/fork.h"
#include "record/op.h"
#include "windrow/engine/internal/mutex.h"

namespace windrow {

/// Members may be called by any thread.
class Variables {
 public:
  /// A variable for the next user. Unless it is `fresh`, the caller must begin another life of it.
  struct Taken {
    VarState& var;
    bool fresh;
  };
  Taken take(std::uint32_t engine) WINDROW_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    const bool fresh = free_.empty();
    if (fresh) {
      all_.emplace_back().owner = engine;
      if (free_.capacity() < all_.size()) free_.reserve(2 * all_.size());  // so that give_back() needs no memory
      return {all_.back(), fresh};
    }
    VarState& var = *free_.back();
    free_.pop_back();
    return {var, fresh};
  }
  void give_back(VarState& var) WINDROW_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    free_.push_back(&var);
  }
  template <class F>
  void for_each(F&& f) WINDROW_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    for (VarState& var : all_) f(var);
  }

  // ---- fork; see fork.h ----
  void each_mutex(EachMutex f) { f(mutex_); }
  /// As for_each(), in a forked child with the mutex held.
  template <class F>
  void for_each_in_child(F&& f) WINDROW_UNCHECKED_LOCKING {
    for (VarState& var : all_) f(var);
  }

 private:
  Mutex mutex_;
  std::deque<VarState> all_ WINDROW_GUARDED_BY(mutex_);
  std::vector<VarState*> free_ WINDROW_GUARDED_BY(mutex_);
};

}  // namespace windrow
