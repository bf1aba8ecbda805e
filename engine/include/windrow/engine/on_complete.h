// The token by which an asynchronous op says that it is done.
#pragma once

#include <exception>
#include <utility>

#include "windrow/engine/error.h"

namespace windrow {

class Core;
class OpRecord;

/// Owner of the duty to complete one op. Call it once, from any thread: successors wait until then, and until the op's
/// function has returned. The call runs no other op. A token that is destroyed uncalled fails the op, so a forgotten
/// completion is an error and never a hang. The engine outlives the token, since its shutdown waits for the op.
class OnComplete {
 public:
  OnComplete(OnComplete&& other) noexcept
      : core_(std::exchange(other.core_, nullptr)), op_(std::exchange(other.op_, nullptr)) {}
  OnComplete& operator=(OnComplete&& other) noexcept;
  ~OnComplete();

  /// The op is done, or has failed with `error`. Throws MisuseError if this token has been called or moved from.
  void operator()(std::exception_ptr error = nullptr);

  /// What poisoned the op's variables, for an op marked run_always; else empty.
  FailurePtr failure() const;

 private:
  friend class Core;
  OnComplete(Core& core, OpRecord& op) : core_(&core), op_(&op) {}
  void drop() noexcept;

  Core* core_;
  OpRecord* op_;
};

}  // namespace windrow
