// Waiting for variables without blocking a thread: co_await engine.ready(var).
//
// Any coroutine type can await. This header uses only the public interface of the engine.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <atomic>
#include <coroutine>
#include <exception>
#include <memory>
#include <source_location>
#include <utility>
#include <vector>

#include "windrow/engine/internal/engine_use.h"

namespace windrow {

/// The awaitable that Engine::ready returns; await it once. It refers to the engine and to the coroutine: both must
/// live until the coroutine is resumed. The resumed coroutine may end both, even if it holds the last owner of the
/// engine.
///
/// Order    The coroutine is resumed when Engine::wait would return, that is when all earlier ops that conflict with
///          the accesses have finished. Later ops may run concurrently with it.
/// Where    The coroutine is resumed inside an engine op without accesses: on a worker or, with policy serial, on a
///          thread that pushes. So it may push and wait as ops may. It occupies a worker until it suspends again or
///          ends.
/// Errors   co_await throws OpError if one of the variables is poisoned, and MisuseError where a push with these
///          accesses would. If there is no memory for the op that is to resume the coroutine, co_await throws
///          std::bad_alloc, and the coroutine holds the accesses until it suspends again. An exception that leaves the
///          coroutine is handled by its promise; if the promise throws, the op that resumed it fails.
/// End      shutdown_for() resumes a coroutine whose accesses are granted in time, since these ops cannot be called
///          off. A coroutine that awaits an engine which shutdown_for() has not ended is never resumed once the engine
///          is gone.
/// Threads  A suspended coroutine may be destroyed as long as its accesses have not been granted (for example because
///          an op that the destroying thread controls still holds the variable). It is not resumed then. Once the
///          accesses are granted, it may be resumed at any moment.
class Ready {
 public:
  Ready(Engine& engine, std::vector<Access> accesses, std::source_location from)
      : engine_(engine), accesses_(std::move(accesses)), from_(from) {}
  ~Ready() {
    if (turn_) turn_->waits = false;
  }
  Ready(const Ready&) = delete;
  Ready& operator=(const Ready&) = delete;

  bool await_ready() const noexcept { return false; }

  void await_suspend(std::coroutine_handle<> coroutine) {
    turn_ = std::make_shared<Turn>();
    turn_->coroutine = coroutine;
    // Before push returns, the coroutine may have ended, and with it this object and all owners of the engine.
    const std::vector<Access> accesses = std::move(accesses_);
    const EngineUse use(engine_);
    engine_.push([from = from_, turn = turn_](OpContext& context) { granted(from, turn, context); }, accesses,
                 {.name = "ready", .run_always = true, .pushed_at = from_});
  }

  void await_resume() const {
    if (turn_->error) std::rethrow_exception(turn_->error);
  }

 private:
  /// Shared by the awaiting coroutine and the op that it awaits; either may end first.
  struct Turn {
    std::coroutine_handle<> coroutine;
    std::exception_ptr error;  ///< written before the coroutine is resumed
    std::atomic<bool> waits{true};
  };

  static void granted(std::source_location from, const std::shared_ptr<Turn>& turn, OpContext& context) {
    try {
      context.throw_if_poisoned();
    } catch (...) {
      turn->error = std::current_exception();
    }
    // The coroutine runs in a separate op without accesses, so it blocks no other op at the variables.
    const auto resume = [turn] {
      if (turn->waits.exchange(false)) turn->coroutine.resume();
    };
    try {
      push_inside_op(resume, {}, {.name = "resume", .run_always = true, .pushed_at = from});
    } catch (...) {
      turn->error = std::current_exception();
      resume();
    }
  }

  Engine& engine_;
  std::vector<Access> accesses_;
  const std::source_location from_;
  std::shared_ptr<Turn> turn_;
};

inline Ready Engine::ready(Var var, std::source_location from) { return Ready(*this, {read(var)}, from); }
inline Ready Engine::ready(Access access, std::source_location from) { return Ready(*this, {access}, from); }
inline Ready Engine::ready(AccessList accesses, std::source_location from) {
  return Ready(*this, {accesses.begin(), accesses.end()}, from);
}

}  // namespace windrow
