// Reports when ops are pending and none finishes.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>

#include "process/fork.h"
#include "windrow/engine/internal/mutex.h"

namespace windrow {

class Core;

/// Owner of a thread that checks the engine's progress a few times within EngineOptions::watchdog, and sleeps in
/// between. After a report it reports again only after an op has finished.
class Watchdog {
 public:
  struct Progress {
    std::uint64_t finished = 0, pending = 0;  ///< ops, and points of lanes
  };

  explicit Watchdog(Core& core) : core_(core) {}
  ~Watchdog() { stop(); }

  /// Starts the thread, unless it was started. Throws Error if the system refuses.
  void start() WINDROW_EXCLUDES(mutex_);
  /// Ends and joins the thread, which must not be the calling one. May be called twice.
  void stop() WINDROW_EXCLUDES(mutex_);

  // ---- fork; see fork.h ----
  void each_mutex(EachMutex f) { f(mutex_); }
  /// Called in a forked child: the thread does not exist; start() starts another.
  void forget_thread() noexcept WINDROW_UNCHECKED_LOCKING;

 private:
  using Clock = std::chrono::steady_clock;

  void serve() WINDROW_EXCLUDES(mutex_);
  /// Whether nothing has finished for so long that it must be reported.
  bool look();
  void report();

  Core& core_;

  // Owned by the thread:
  std::uint64_t finished_ = 0;
  std::optional<Clock::time_point> silent_since_;  // empty while nothing is pending
  bool told_ = false;                              // whether this silence was reported

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ WINDROW_GUARDED_BY(mutex_) = false;
  std::thread thread_ WINDROW_GUARDED_BY(mutex_);
};

}  // namespace windrow
