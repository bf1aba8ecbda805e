// Errors: misuse throws at the call; a failing op poisons variables.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstdint>
#include <exception>
#include <memory>
#include <source_location>
#include <stdexcept>
#include <string>
#include <vector>

#include "windrow/engine/var.h"

namespace windrow {

class CoreLink;
class Front;
class OpContext;
class Waits;

/// Base class of the exception types that Windrow defines.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Thrown by a call that breaks a rule of the interface; the call has changed nothing.
class MisuseError : public Error {
 public:
  using Error::Error;
};

/// Thrown by a wait inside an op that could never end, because the ops that it waits for wait for that op. The text
/// lists the cycle.
class WaitCycleError : public MisuseError {
 public:
  using MisuseError::MisuseError;
};

/// The error of an op that was cancelled before it ran (see PushOptions::stop). An op's function may also throw it. It
/// fails the op like any other exception, and is reported as a cancellation.
class Cancelled : public Error {
 public:
  Cancelled() : Error("cancelled") {}
};

/// The error of an op whose deadline has passed before it has finished (see PushOptions::deadline).
class DeadlineError : public Error {
 public:
  using Error::Error;
};

/// Why an op or a lane failed. An immutable value, shared by all that report it.
///
/// `cause` is the failure that caused this one; it is null at the root, which is an op that threw, or a lane. In a long
/// chain only the failures nearest the root and the last one are kept; `elided` counts the omitted failures between the
/// last one and its cause.
struct Failure {
  enum class Kind {
    threw,      ///< the op's function threw, or its OnComplete reported an error or was dropped
    waited,     ///< the op's function did not catch the error of a wait inside it
    skipped,    ///< the op did not run, since one of its variables was poisoned
    lost,       ///< the op was issued on a lane that failed before the work was done
    lane,       ///< not an op: the lane itself failed
    cancelled,  ///< the op was cancelled before it ran, or threw Cancelled
  };
  static constexpr std::uint32_t chain_limit = 16;

  Kind kind = Kind::threw;
  std::string name = {};                ///< of the op ("op" if it had none) or of the lane
  std::source_location pushed_at = {};  ///< where the program pushed the op
  /// The values (value.h) that the op changes, as readable text: "'x', 'tiles[5]'". Names only a few if there are many.
  std::string changes = {};
  std::exception_ptr error = {};  ///< at the root: the exception
  std::shared_ptr<const Failure> cause = {};
  std::uint32_t depth = 0;  ///< number of causes in the chain; 0 at the root
  std::uint64_t elided = 0;

  /// The root of the chain; this failure itself if it has no cause.
  const Failure& root() const;
  /// The original cause: the exception that the root's exception nests (std::nested_exception), or else the root's
  /// exception. Failures that nest the same exception are one event: if nobody waited for any of them, the engine logs
  /// one.
  std::exception_ptr origin() const;
  /// One line: the op, where it was pushed, and the chain of causes down to the root's message.
  std::string describe() const;
};

using FailurePtr = std::shared_ptr<const Failure>;

/// A variable that carries a failure. A value.
struct Poisoned {
  Var var;
  std::string name;    ///< the variable's
  FailurePtr failure;  ///< why its value is missing or incomplete
};

/// Thrown by each wait for poisoned variables, until they are healed or overwritten.
class OpError : public Error {
 public:
  /// The failures, at least one, each with its chain of causes. what() names the first ten.
  const std::vector<FailurePtr>& failures() const { return *failures_; }
  /// All variables that now carry one of these failures or another failure with the same root, not only those of the
  /// wait. Pending ops may spread the failures to more variables; after an error of wait_all() no op is pending. Omits
  /// variables that were healed, overwritten or retired, and data lost by a failed lane that no op has used since.
  /// Inspects all variables of the engine. Empty once the engine is gone. Threads: any, also inside ops.
  std::vector<Poisoned> poisoned() const;
  /// Rethrows the original exception of the first failure's root.
  [[noreturn]] void rethrow_root() const;

 private:
  friend class Front;
  friend class Waits;
  friend class OpContext;
  friend class WeakOpError;
  OpError(std::vector<FailurePtr> failures, std::shared_ptr<CoreLink> engine);

  // Shared, so that copying the exception cannot throw.
  std::shared_ptr<const std::vector<FailurePtr>> failures_;
  std::shared_ptr<CoreLink> engine_;
};

}  // namespace windrow
