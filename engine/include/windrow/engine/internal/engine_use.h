// For code built on an engine: pushes whose op may end the engine, and pushes by ops that may outlive it.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <chrono>
#include <functional>
#include <string_view>

#include "windrow/engine/engine.h"

namespace windrow {

/// While an EngineUse exists, the end of the engine waits for it. A push hands its op to another thread before it
/// returns. If that op may drop the last owner of the engine, the pushing thread must hold an EngineUse around the
/// push. The engine must be alive when it is constructed.
///
/// The holding thread must not end or shut down the engine meanwhile, except inside an op.
class EngineUse {
 public:
  explicit EngineUse(Engine& engine);
  ~EngineUse();
  EngineUse(const EngineUse&) = delete;
  EngineUse& operator=(const EngineUse&) = delete;

  /// Declares that pending ops may wait for later pushes of the calling thread, such as the other member's part of a
  /// collective. From now on the thread is held back like one that completes ops, see EngineOptions::push_patience.
  static void note_awaited(Engine& engine);
  /// As Engine::retire, for an owner of the variable that ends. If a capture records it, the error of a second launch
  /// advises to keep `owner` alive; `owner` is a literal such as "the reduction".
  static void retire(Engine& engine, Var var, const char* owner, OpFunction&& last = nullptr,
                     const PushOptions& options = {.name = "retire"});
  /// Whether the calling thread runs an op of the engine.
  static bool runs_op(Engine& engine);
  /// Blocks until no op is pending; returns false after `patience`. Unlike wait_all_for() it reports no failure, so the
  /// end of the engine still logs those for which nobody has waited. Throws MisuseError in a forked child whose copy of
  /// the engine is unusable.
  static bool wait_until_idle(Engine& engine, std::chrono::nanoseconds patience);
  /// Whether no op that was pushed with the variable is pending. An op that was issued on `lane` counts as finished; an
  /// op of another ordered lane is pending until its point is reached. Throws as Engine::version().
  static bool is_idle(Engine& engine, Var var, const Lane* lane);
  /// How often the variable was healed by Engine::heal, modulo 2^8. Read it after Engine::pushed_version(): then it
  /// counts the heals that this number counts. Throws as Engine::version().
  static std::uint8_t heals(Engine& engine, Var var);

 private:
  Core& core_;
};

/// While it lives, its thread looks elsewhere during waits outside ops: those for variables and for all ops of any
/// engine, and pushes that are held back. They call `look` about every 50 ms, also if each of them is shorter. An
/// exception of `look` ends the wait, and changes nothing: ops that were pushed go on. A push that it ends has no
/// effect, except under policy serial and for a launch of a graph: these wait when the ops are pushed. So code that
/// waits for an op must not lend it objects that end with an exception.
///
/// The last one that a thread has made counts. Without a function it turns looks off.
class LookWhileWaiting {
 public:
  explicit LookWhileWaiting(std::function<void()> look = nullptr);
  ~LookWhileWaiting();
  LookWhileWaiting(const LookWhileWaiting&) = delete;
  LookWhileWaiting& operator=(const LookWhileWaiting&) = delete;

  /// How often a thread looks.
  static constexpr std::chrono::milliseconds interval{50};
  /// Looks, if it is time to. Waits that are no engine's call it at least this often.
  static void look();
  /// Whether the thread has something to look at, and is outside ops.
  static bool looks();

 private:
  const std::function<void()> look_;
  std::chrono::steady_clock::time_point next_;
  LookWhileWaiting* const outer_;
};

/// As Engine::push and Engine::retire of the engine whose op the calling thread runs. For ops that may run after the
/// Engine object is gone, because another op has ended it or shutdown_for() has left pending ops. Throw MisuseError
/// outside ops.
void push_inside_op(OpFunction function, AccessList accesses, const PushOptions& options);
void retire_inside_op(Var var);

/// Writes a line to the engines' log, as a warning. Threads: any.
void log_warning(std::string_view line) noexcept;

}  // namespace windrow
