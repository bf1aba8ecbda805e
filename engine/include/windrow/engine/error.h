// What goes wrong and how it is told: misuse at the call, failure of an op through the variables it poisoned.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <source_location>
#include <stdexcept>
#include <string>
#include <vector>

namespace windrow {

class Core;
class OpContext;

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A call that breaks a rule of the interface. Thrown by that call, which then has changed nothing.
class MisuseError : public Error {
 public:
  using Error::Error;
};

/// A wait inside an op that could never end, since what it waits for waits for that op. The text names the ring.
class WaitCycleError : public MisuseError {
 public:
  using MisuseError::MisuseError;
};

/// The op was called off before it ran, or its function saw that itself and stopped: see PushOptions::stop. It fails
/// the op like any other exception, and is told as a cancellation.
class Cancelled : public Error {
 public:
  Cancelled() : Error("cancelled") {}
};

/// Why one op, or one lane, failed. A value, shared and never changed.
///
/// `cause` is the failure it comes from, and empty at the root: an op that threw, or a lane. Of a long chain the
/// failures next to the root are kept, and the last one; `elided` counts those left out between that one and its cause.
struct Failure {
  enum class Kind {
    threw,      ///< the op's function threw, or its OnComplete brought an error or was dropped
    waited,     ///< the op's function let the error of a wait inside it pass
    skipped,    ///< the op did not run, since something it touches was poisoned
    lost,       ///< the op was issued on a lane that failed before it was done
    lane,       ///< not an op: the lane itself failed
    cancelled,  ///< the op was called off before it ran, or threw Cancelled
  };
  static constexpr std::uint32_t chain_limit = 16;

  Kind kind = Kind::threw;
  std::string name = {};                ///< of the op, "op" if it had none, or of the lane
  std::source_location pushed_at = {};  ///< where the program pushed the op
  std::exception_ptr error = {};        ///< at the root: what was thrown
  std::shared_ptr<const Failure> cause = {};
  std::uint32_t depth = 0;  ///< failures between this one and its root
  std::uint64_t elided = 0;

  /// Where it all came from.
  const Failure& root() const;
  /// One line: the op, where it was pushed, and the chain down to the root's message.
  std::string describe() const;
};

using FailurePtr = std::shared_ptr<const Failure>;

/// Thrown by waits on poisoned variables: every time, until these are healed or overwritten.
class OpError : public Error {
 public:
  /// At least one; each with its chain of causes. The text names the first ten.
  const std::vector<FailurePtr>& failures() const { return *failures_; }
  /// Throws what the first root threw, as it was.
  [[noreturn]] void rethrow_root() const;

 private:
  friend class Core;
  friend class OpContext;
  explicit OpError(std::vector<FailurePtr> failures);

  std::shared_ptr<const std::vector<FailurePtr>> failures_;  // shared, so that copying the exception cannot throw
};

}  // namespace windrow
