// The circumstances in which an op began and ended.
#pragma once

#include <exception>
#include <optional>

#include "record/op.h"
#include "record/ports.h"
#include "trace/log.h"

namespace windrow {

class Slots;

/// The slots in which an op begins; the time, if the op is traced, else 0.
struct Begin {
  Slots* slots;
  Ticks begun;
};

/// The error of an op whose OnComplete was destroyed without being called.
std::exception_ptr dropped_error();
/// The error of the ops that shutdown_for() calls off. All such errors nest the same exception.
std::exception_ptr called_off_error();

/// Ops that a thread runs in a row, each made ready by its predecessor.
struct OpsInARow {
  Slots* slots;
  bool goes_on;  ///< whether the policy lets this thread choose its next op
  Port& port;    ///< of this thread
  OpContext context{};
  Ticks begun = 0;    ///< when the op began, if it is traced; else 0
  unsigned runs = 1;  ///< the number of ops so far, including the one that runs
};

/// The outcome of an op.
struct Ending {
  Outcome outcome;
  FailurePtr poison = nullptr;         ///< prevented the op from running, unless the op is marked run_always
  std::exception_ptr error = nullptr;  ///< of a failed op
  std::optional<Mark> mark = std::nullopt;
  Ticks begun = 0;  ///< if the op is traced, else 0
  Slots* slots = nullptr;
  TraceRecord::Kind kind = TraceRecord::Kind::op;
};

}  // namespace windrow
