// Reports when ops are pending and none finishes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "process/fork.h"
#include "windrow/engine/internal/mutex.h"

namespace windrow {

/// Owner of a thread that looks at the progress a few times within its patience, and sleeps in between. It knows no
/// engine: it is given what to look at. It reports once per silence: again only after an op has finished.
class Watchdog {
 public:
  struct Progress {
    std::uint64_t finished = 0, pending = 0;  ///< ops, and points of lanes
  };
  struct Watched {
    std::chrono::nanoseconds patience;
    std::function<Progress()> progress;
    std::function<std::string()> describe;
    /// Gets each report that is logged; may be empty. What it throws is logged.
    std::function<void(std::string)> tell;
  };

  explicit Watchdog(Watched watched) : watched_(std::move(watched)) {}
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
  /// Whether the silence has lasted so long that it must be reported.
  bool look();
  void report();

  const Watched watched_;

  // Owned by the thread:
  std::uint64_t finished_ = 0;
  std::optional<Clock::time_point> silent_since_;  // empty while nothing is pending
  bool told_ = false;                              // whether this silence was reported

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ WINDROW_GUARDED_BY(mutex_) = false;
  std::thread thread_ WINDROW_GUARDED_BY(mutex_);
};

class Core;
/// Makes a watchdog that is not started.
std::unique_ptr<Watchdog> make_watchdog(Core& core);

}  // namespace windrow
