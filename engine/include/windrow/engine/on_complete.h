// The token with which an asynchronous op reports its completion.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <exception>
#include <utility>

#include "windrow/engine/error.h"

namespace windrow {

class Core;
class Lane;
class OpRecord;
struct OpLimits;

/// Owns the duty to complete one op. Call it once, from any thread: successors wait for that call and for the return of
/// the op's function. The call runs no other op. Destroying an uncalled token fails the op, so a forgotten completion
/// is an error instead of a hang. The engine outlives the token, since its shutdown waits for the op.
class OnComplete {
 public:
  OnComplete(OnComplete&& other) noexcept
      : core_(std::exchange(other.core_, nullptr)), op_(std::exchange(other.op_, nullptr)), limits_(other.limits_) {}
  OnComplete& operator=(OnComplete&& other) noexcept;
  ~OnComplete();

  /// Completes the op: successfully, or with the failure `error`. Throws MisuseError if this token has been called or
  /// moved from.
  void operator()(std::exception_ptr error = nullptr);

  /// For an op marked run_always: the failure that poisons its variables; otherwise null.
  FailurePtr failure() const;
  /// The ordered lane that the op issues its work on; null on a host lane.
  Lane* lane() const;
  /// As OpContext::should_stop().
  bool should_stop() const;

 private:
  friend class Back;
  friend class Launches;
  friend struct OpLimits;
  OnComplete(Core& core, OpRecord& op) : core_(&core), op_(&op) {}
  void drop() noexcept;

  Core* core_;
  OpRecord* op_;
  const OpLimits* limits_ = nullptr;  // they live in the op until it has completed
};

}  // namespace windrow
