// The threads that are held back since they push too far ahead.
#pragma once

#include <atomic>

#include "process/fork.h"
#include "windrow/engine/mutex.h"

namespace windrow {

/// They go on in the order they came, so that none starves beside others that push as fast as they can. Needs no
/// memory.
class HeldBack {
 public:
  /// Owned by a thread that is held back, as long as that lasts.
  class Place {
   public:
    explicit Place(HeldBack& among) : among_(among) {
      MutexLock lock(among_.mutex_);
      Place** link = &among_.first_;
      while (*link != nullptr) link = &(*link)->next_;
      *link = this;
    }
    ~Place() {
      MutexLock lock(among_.mutex_);
      Place** link = &among_.first_;
      while (*link != this) link = &(*link)->next_;
      *link = next_;
    }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    bool is_first() const {
      MutexLock lock(among_.mutex_);
      return among_.first_ == this;
    }

   private:
    HeldBack& among_;
    Place* next_ = nullptr;  // guarded by among_.mutex_
  };

  /// Whether the log was not told yet that one goes on although ops are pending. True once.
  bool is_news() { return !told_.exchange(true); }

  // ---- fork; see fork.h ----
  void each_mutex(EachMutex f) { f(mutex_); }
  /// In a forked child: those threads do not exist, the mutex is held. The thread that forked is not among them.
  void forget_threads() WINDROW_UNCHECKED_LOCKING { first_ = nullptr; }

 private:
  std::atomic<bool> told_{false};
  Mutex mutex_;
  Place* first_ WINDROW_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace windrow
