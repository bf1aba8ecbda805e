// The circumstances in which an op began and ended.
#pragma once

#include <exception>
#include <optional>

#include "core/op.h"
#include "trace/log.h"

namespace windrow {

class Slots;

/// The slots in which an op begins; the time, if the op is traced, else 0.
struct Begin {
  Slots* slots;
  Ticks begun;
};

/// The outcome of an op.
struct Ending {
  Outcome outcome;
  FailurePtr poison = nullptr;         ///< prevented the op from running, or would have without run_always
  std::exception_ptr error = nullptr;  ///< of a failed op
  std::optional<Mark> mark = std::nullopt;
  Ticks begun = 0;  ///< if the op is traced, else 0
  Slots* slots = nullptr;
  TraceRecord::Kind kind = TraceRecord::Kind::op;
};

}  // namespace windrow
