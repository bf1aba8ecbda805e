// An event that happens once, and for which threads wait.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>

#include "windrow/engine/internal/mutex.h"

namespace windrow {

using Deadline = std::optional<std::chrono::steady_clock::time_point>;

inline bool has_passed(const Deadline& deadline) { return deadline && std::chrono::steady_clock::now() >= *deadline; }
/// None if that time cannot be represented.
inline Deadline deadline_after(std::chrono::nanoseconds patience) {
  using Clock = std::chrono::steady_clock;
  const auto now = Clock::now();
  if (patience > Clock::time_point::max() - now) return std::nullopt;
  return now + patience;
}

/// All members may be called by any thread. Writes before set() are visible after a wait() that returned true.
class Signal {
 public:
  void set() {
    MutexLock lock(mutex_);
    set_.store(true, std::memory_order_release);
    changed_.notify_all();
  }
  bool is_set() const { return set_.load(std::memory_order_acquire); }
  /// Returns false if the deadline passes first.
  bool wait(const Deadline& deadline) {
    MutexLock lock(mutex_);
    while (!is_set()) {
      if (!deadline) {
        changed_.wait(mutex_);
      } else if (!changed_.wait_until(mutex_, *deadline)) {
        break;
      }
    }
    return is_set();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::atomic<bool> set_{false};  // written under mutex_
};

}  // namespace windrow
