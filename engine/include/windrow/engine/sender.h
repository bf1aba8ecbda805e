// An op as a sender with the interface of P2300 ("std::execution"). It needs no P2300 library.
//
//   auto sender = windrow::push_sender(engine, [&] { y = 2 * x; }, {read(a), mutate(b)}, {.name = "double"});
//   auto operation = std::move(sender).connect(receiver);
//   operation.start();
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <atomic>
#include <exception>
#include <utility>
#include <vector>

#include "windrow/engine/internal/engine_use.h"

namespace windrow {

/// Owns an op that start() pushes; created by PushSender::connect. Not movable.
///
/// Completion  After start(), exactly one of `set_value()`, `set_error(std::exception_ptr)` and `set_stopped()` is
///             called on the receiver, when the op has finished and its captures are destroyed. set_error receives an
///             OpError if the op failed or was skipped. set_stopped is called instead if the root failure is a
///             Cancelled of this op or of an op that it depends on. If the push is refused, start() itself calls
///             set_error.
/// Where       The receiver is called inside an engine op without accesses to the op's variables, so it blocks no other
///             op; with policy serial this may be inside start().
/// Lifetime    This object and the engine must live until the receiver has been called. The receiver may end both, even
///             if it holds the last owner of the engine, since the engine's end waits until start() has left it. If the
///             engine ends although shutdown_for() has returned false, the receiver may never be called.
template <class Receiver>
class PushOperation {
 public:
  struct Op {
    Engine& engine;
    OpFunction function;
    std::vector<Access> accesses;
    PushOptions options;
  };

  PushOperation(Op op, Receiver receiver) : op_(std::move(op)), receiver_(std::move(receiver)) {}
  PushOperation(const PushOperation&) = delete;
  PushOperation& operator=(const PushOperation&) = delete;

  /// Pushes the op. Call it once, from any thread.
  void start() noexcept {
    try {
      push();
    } catch (...) {
      error_ = std::current_exception();
      if (!pushed_ || half_.exchange(true)) std::move(receiver_).set_error(std::move(error_));
    }
  }

 private:
  /// The function that is pushed. It is destroyed when the op has finished or will not run.
  class Run {
   public:
    explicit Run(PushOperation& of) : of_(&of) {}
    Run(Run&& other) noexcept : of_(std::exchange(other.of_, nullptr)) {}
    ~Run() {
      if (of_ != nullptr) of_->end();
    }
    void operator()(OpContext& context) const { of_->function_(context); }

   private:
    PushOperation* of_;
  };

  /// Pushes the op, and a second op that completes it. Once both are pushed, this object and all owners of the engine
  /// may be gone.
  void push() {
    Op op = std::move(op_);
    function_ = std::move(op.function);
    const EngineUse use(op.engine);
    // A separate variable carries the op's outcome, since other ops may heal or poison its other variables meanwhile.
    const Var outcome = op.engine.new_var(OpName("outcome"));
    try {
      op.accesses.push_back(mutate(outcome));
      op.engine.push([run = Run(*this)](OpContext& context) { run(context); }, op.accesses, op.options);
      pushed_ = true;
      op.engine.push([this, outcome](OpContext& context) { complete(outcome, context); }, {read(outcome)},
                     {.name = "complete", .run_always = true, .pushed_at = op.options.pushed_at});
    } catch (...) {
      try {
        op.engine.retire(outcome);
      } catch (...) {
        // No memory: the variable is lost, but start() still learns why the push failed.
      }
      throw;
    }
  }

  /// Called when the op is over. If the second push was refused, the later of the two events calls the receiver.
  void end() noexcept {
    function_ = nullptr;
    if (half_.exchange(true)) std::move(receiver_).set_error(std::move(error_));
  }

  void complete(Var outcome, OpContext& context) noexcept {
    try {
      retire_inside_op(outcome);  // before the receiver is called, which may end the engine
    } catch (...) {
      // No memory: the variable is lost, but the receiver is still called.
    }
    const FailurePtr& failure = context.failure();
    if (!failure) return std::move(receiver_).set_value();
    try {
      context.throw_if_poisoned();
    } catch (...) {
      if (failure->root().kind == Failure::Kind::cancelled) return std::move(receiver_).set_stopped();
      std::move(receiver_).set_error(std::current_exception());
    }
  }

  Op op_;
  OpFunction function_;  ///< from start() until the op is over
  Receiver receiver_;
  bool pushed_ = false;            ///< the op has been pushed; read by start() only
  std::exception_ptr error_;       ///< of the second push
  std::atomic<bool> half_{false};  ///< the op is over, or the second push was refused
};

/// A value that can be connected once.
class PushSender {
 public:
  PushSender(Engine& engine, OpFunction function, AccessList accesses, PushOptions options)
      : engine_(engine),
        function_(std::move(function)),
        accesses_(accesses.begin(), accesses.end()),
        options_(std::move(options)) {}

  /// Moves the receiver into the operation. Its `set_value`, `set_error` and `set_stopped` must not throw.
  template <class Receiver>
  PushOperation<Receiver> connect(Receiver receiver) && {
    return PushOperation<Receiver>({engine_, std::move(function_), std::move(accesses_), std::move(options_)},
                                   std::move(receiver));
  }

 private:
  Engine& engine_;
  OpFunction function_;
  std::vector<Access> accesses_;
  PushOptions options_;
};

/// A sender of the op that Engine::push would push with these arguments; start() pushes it. The engine must live until
/// the operation has completed.
inline PushSender push_sender(Engine& engine, OpFunction function, AccessList accesses,
                              const PushOptions& options = {}) {
  return PushSender(engine, std::move(function), accesses, options);
}

}  // namespace windrow
