// std::mutex and std::condition_variable with the annotations that clang's thread-safety analysis needs.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <new>

#if defined(__clang__)
#define WINDROW_ANNOTATE(x) __attribute__((x))
#else
#define WINDROW_ANNOTATE(x)
#endif
#define WINDROW_CAPABILITY(name) WINDROW_ANNOTATE(capability(name))
#define WINDROW_SCOPED WINDROW_ANNOTATE(scoped_lockable)
#define WINDROW_GUARDED_BY(m) WINDROW_ANNOTATE(guarded_by(m))
#define WINDROW_REQUIRES(...) WINDROW_ANNOTATE(requires_capability(__VA_ARGS__))
/// For a function whose locks are acquired or released by another function.
#define WINDROW_UNCHECKED_LOCKING WINDROW_ANNOTATE(no_thread_safety_analysis)
#define WINDROW_EXCLUDES(...) WINDROW_ANNOTATE(locks_excluded(__VA_ARGS__))
#define WINDROW_ACQUIRE(...) WINDROW_ANNOTATE(acquire_capability(__VA_ARGS__))
#define WINDROW_TRY_ACQUIRE(...) WINDROW_ANNOTATE(try_acquire_capability(__VA_ARGS__))
#define WINDROW_RELEASE(...) WINDROW_ANNOTATE(release_capability(__VA_ARGS__))

namespace windrow {

class WINDROW_CAPABILITY("mutex") Mutex {
 public:
  void lock() WINDROW_ACQUIRE() { mutex_.lock(); }
  void unlock() WINDROW_RELEASE() { mutex_.unlock(); }
  bool try_lock() WINDROW_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  /// Resets the mutex in a forked child, where the thread that held it does not exist.
  void forget_holder() { ::new (&mutex_) std::mutex; }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

/// Holds the mutex for its scope, except between unlock() and lock().
class WINDROW_SCOPED MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) WINDROW_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  /// For a mutex that this thread holds already.
  enum class Held {};
  MutexLock(Mutex& mutex, Held) WINDROW_REQUIRES(mutex) : mutex_(mutex) {}
  ~MutexLock() WINDROW_RELEASE() {
    if (held_) mutex_.unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void lock() WINDROW_ACQUIRE() {
    mutex_.lock();
    held_ = true;
  }
  void unlock() WINDROW_RELEASE() {
    held_ = false;
    mutex_.unlock();
  }

 private:
  Mutex& mutex_;
  bool held_ = true;
};

class CondVar {
 public:
  void wait(Mutex& mutex) WINDROW_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  /// Returns false if the deadline has passed.
  bool wait_until(Mutex& mutex, std::chrono::steady_clock::time_point deadline) WINDROW_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool woken = condition_.wait_until(lock, deadline) == std::cv_status::no_timeout;
    lock.release();
    return woken;
  }
  void notify_one() { condition_.notify_one(); }
  void notify_all() { condition_.notify_all(); }
  /// Resets the condition in a forked child, where the waiting threads do not exist; its destructor would wait for
  /// them.
  void forget_waiters() { ::new (&condition_) std::condition_variable; }

 private:
  std::condition_variable condition_;
};

}  // namespace windrow
