// Something that happens once, and threads that wait for it.
#pragma once

#include <chrono>
#include <optional>

#include "windrow/engine/mutex.h"

namespace windrow {

using Deadline = std::optional<std::chrono::steady_clock::time_point>;

/// All members may be called by any thread. What is written before set() may be read after a wait() that returned true.
class Signal {
 public:
  void set() {
    MutexLock lock(mutex_);
    set_ = true;
    changed_.notify_all();
  }
  bool is_set() {
    MutexLock lock(mutex_);
    return set_;
  }
  /// False if the deadline passes first.
  bool wait(const Deadline& deadline) {
    MutexLock lock(mutex_);
    while (!set_) {
      if (!deadline) {
        changed_.wait(mutex_);
      } else if (!changed_.wait_until(mutex_, *deadline)) {
        break;
      }
    }
    return set_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool set_ WINDROW_GUARDED_BY(mutex_) = false;
};

}  // namespace windrow
