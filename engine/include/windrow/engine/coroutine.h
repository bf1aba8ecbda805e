// Waiting for variables without blocking a thread: co_await engine.ready(var).
//
// It knows no type of coroutine: any may await. Built on the public interface alone.
#pragma once

#include <atomic>
#include <coroutine>
#include <exception>
#include <memory>
#include <source_location>
#include <utility>
#include <vector>

#include "windrow/engine/engine_use.h"

namespace windrow {

/// What Engine::ready returns, to be awaited once. It copies neither the engine nor the coroutine: both must live until
/// the coroutine goes on, which may then end both, the last owner of the engine too.
///
/// Order    The coroutine goes on when Engine::wait would return: all that was pushed before, and conflicts with the
///          accesses, is done. What is pushed later may run beside it.
/// Where    It goes on inside an op of the engine that has no accesses: on a worker, or with policy serial on a thread
///          that pushes. So it may push and wait as ops may, and until it suspends again or ends it takes the place of
///          an op.
/// Errors   Throws OpError inside the coroutine if one of the variables is poisoned, and MisuseError where a push with
///          these accesses would. If there is no memory for the op in which it would go on, it throws std::bad_alloc,
///          and holds the accesses until it suspends again. What the coroutine lets pass is its promise's affair; if
///          that throws, an op fails.
/// Threads  A coroutine may be destroyed while it awaits, as long as the access has not been granted: by whoever holds
///          up the variable, for instance. It is then not resumed. From the grant on it may be about to be resumed.
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
    // The coroutine may have ended, this and all owners of the engine with it, before push returns.
    const std::vector<Access> accesses = std::move(accesses_);
    const EngineUse use(engine_);
    engine_.push(
        [&engine = engine_, from = from_, turn = turn_](OpContext& context) { granted(engine, from, turn, context); },
        accesses, {.name = "ready", .run_always = true, .pushed_at = from_});
  }

  void await_resume() const {
    if (turn_->error) std::rethrow_exception(turn_->error);
  }

 private:
  /// Shared by the coroutine that awaits and the op it awaits, either of which may be gone first.
  struct Turn {
    std::coroutine_handle<> coroutine;
    std::exception_ptr error;  ///< written before the coroutine goes on
    std::atomic<bool> waits{true};
  };

  static void granted(Engine& engine, std::source_location from, const std::shared_ptr<Turn>& turn,
                      OpContext& context) {
    try {
      context.throw_if_poisoned();
    } catch (...) {
      turn->error = std::current_exception();
    }
    // An op of its own, so that the coroutine holds up nobody at the variables.
    const auto resume = [turn] {
      if (turn->waits.exchange(false)) turn->coroutine.resume();
    };
    try {
      engine.push(resume, {}, {.name = "resume", .pushed_at = from});
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
