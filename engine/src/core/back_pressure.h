// Back-pressure: blocks threads that push too far ahead.
#pragma once

#include "core/pending_bytes.h"
#include "process/fork.h"
#include "record/ports.h"
#include "windrow/engine/internal/mutex.h"

namespace windrow {

class Core;

/// Threads continue in the order in which they came, so that none starves while others push as fast as they can. Needs
/// no memory.
class ThreadQueue {
 public:
  /// A thread in the queue. Lives on that thread's stack while the thread is held back.
  class Waiter {
   public:
    explicit Waiter(ThreadQueue& among) : among_(among) {
      MutexLock lock(among_.mutex_);
      Waiter** link = &among_.first_;
      while (*link != nullptr) link = &(*link)->next_;
      *link = this;
      among_.any_.store(true, std::memory_order_relaxed);
    }
    ~Waiter() {
      MutexLock lock(among_.mutex_);
      Waiter** link = &among_.first_;
      while (*link != this) link = &(*link)->next_;
      *link = next_;
      among_.any_.store(among_.first_ != nullptr, std::memory_order_relaxed);
    }
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;

    bool is_first() const {
      MutexLock lock(among_.mutex_);
      return among_.first_ == this;
    }

   private:
    ThreadQueue& among_;
    Waiter* next_ = nullptr;  // guarded by among_.mutex_
  };

  /// Whether threads are in the queue. Another thread may enter or leave it at any time.
  bool any() const { return any_.load(std::memory_order_relaxed); }

  /// True only at the first call, so that the log gets one warning that a thread continues although ops are pending.
  bool is_news() { return !told_.exchange(true); }

  // ---- fork; see fork.h ----
  void each_mutex(EachMutex f) { f(mutex_); }
  /// To be called in a forked child, with the mutex held. The threads do not exist there; the thread that forked is not
  /// among them.
  void forget_threads() WINDROW_UNCHECKED_LOCKING {
    first_ = nullptr;
    any_ = false;
  }

 private:
  std::atomic<bool> told_{false}, any_{false};
  Mutex mutex_;
  Waiter* first_ WINDROW_GUARDED_BY(mutex_) = nullptr;
};

class BackPressure {
 public:
  explicit BackPressure(Core& core);

  /// Blocks a thread that has pushed too far ahead, unless it runs an op.
  void hold_back(Port& port);
  /// Waits for room as EngineOptions::max_pending_bytes specifies.
  PendingBytes::Share take_bytes(std::uint64_t bytes);

  PendingBytes pending_bytes;
  ThreadQueue by_ops;    ///< threads held back by max_pending_ops
  ThreadQueue by_bytes;  ///< by max_pending_bytes

 private:
  class Patience;

  Core& core_;
};

}  // namespace windrow
