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

/// One op that threw, or was skipped because something it touches was poisoned. A value, shared and never changed.
///
/// `cause` is the failure that made this op be skipped, and empty at the root: the op that threw. Of a long chain the
/// skips next to the root are kept, and the last one; `elided` counts those left out between that one and its cause.
struct Failure {
  static constexpr std::uint32_t chain_limit = 16;

  std::string op;                  ///< name of the op, "op" if it had none
  std::source_location pushed_at;  ///< where the program pushed it
  std::exception_ptr error;        ///< what the root threw; empty for a skipped op
  std::shared_ptr<const Failure> cause;
  std::uint32_t depth = 0;  ///< failures between this one and its root
  std::uint64_t elided = 0;

  /// The op that threw.
  const Failure& root() const;
  /// One line: the op, where it was pushed, and the chain down to the root's message.
  std::string describe() const;
};

using FailurePtr = std::shared_ptr<const Failure>;

/// Thrown by waits on poisoned variables: every time, until these are healed or overwritten.
class OpError : public Error {
 public:
  explicit OpError(std::vector<FailurePtr> failures);
  /// At least one; each with its chain of causes.
  const std::vector<FailurePtr>& failures() const { return *failures_; }
  /// Throws what the first root threw, as it was.
  [[noreturn]] void rethrow_root() const;

 private:
  std::shared_ptr<const std::vector<FailurePtr>> failures_;  // shared, so that copying the exception cannot throw
};

}  // namespace windrow
