// The end of an engine: shutdown, exit of the process, and copies of engines that a fork made while ops were pending.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <string>

#include "process/fork.h"
#include "wait/once_signal.h"
#include "windrow/engine/internal/mutex.h"

namespace windrow {

class Core;
struct OpInfo;

/// The interval at which a wait during shutdown, or of a serial engine for a device, logs that it still waits.
inline constexpr std::chrono::seconds shutdown_notice{10};

class Life {
 public:
  explicit Life(Core& core) : core_(core) {}
  Life(const Life&) = delete;
  Life& operator=(const Life&) = delete;

  void shutdown();
  bool shutdown_for(std::chrono::nanoseconds patience, const std::function<void(std::string)>& abort);
  /// Whether ops should stop because shutdown_for() has waited too long.
  bool gives_up() const;
  /// Shuts down, and logs the failures that no wait reported. Returns false if ops may still run, or a fork lost them.
  bool end() noexcept;
  void finish_at_exit() noexcept;  ///< waits for the ops that are pending now, as long as they make progress
  void rest_at_exit() noexcept;    ///< the same; afterwards no op begins, and no other thread runs one
  void refuse_unusable() const {
    fork_gate.refuse_unusable();
  }  ///< throws MisuseError in a forked child whose copy of the engine is unusable
  bool unusable() const { return fork_gate.unusable(); }
  /// Whether an op runs, is ready, or awaits its OnComplete or a lane's point. Needs no memory.
  bool any_under_way();

  enum class Phase { running, draining, stopped };
  /// For an engine that is draining or stopped: throws MisuseError if it accepts no ops from this thread.
  void check_phase(Phase phase, const OpInfo& about) const;

  std::atomic<Phase> phase{Phase::running};
  std::atomic<int> visitors{0};          ///< threads that the end of the engine waits for
  std::atomic<bool> left_behind{false};  ///< shutdown_for() has left ops behind
  ForkGate fork_gate;
  Mutex shutdown_mutex;  ///< held by the thread that shuts down; others wait for it

 private:
  void enter_phase(Phase next);
  void refuse_inside(const char* call) const;
  bool shut_down(Deadline deadline);
  /// The same for a thread that must not wait longer than `patience`.
  bool shut_down_in_time(std::chrono::nanoseconds patience);
  bool drain(Deadline deadline);
  /// Called when the engine is leaked: from now on no further function of the program is called.
  void leave_behind() noexcept;

  Core& core_;
};

}  // namespace windrow
