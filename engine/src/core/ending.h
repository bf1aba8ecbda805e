// How an op that runs begins and ends.
#pragma once

#include <exception>
#include <optional>

#include "core/op.h"
#include "trace/log.h"

namespace windrow {

class Slots;

/// On whose slots an op begins, and when if it is traced.
struct Begin {
  Slots* slots;
  Ticks begun;
};

/// How an op has ended.
struct Ending {
  Outcome outcome;
  FailurePtr poison = nullptr;         ///< what kept it from running, or would have
  std::exception_ptr error = nullptr;  ///< of a failed one
  std::optional<Mark> mark = std::nullopt;
  Ticks begun = 0;  ///< where the op is traced
  Slots* slots = nullptr;
  TraceRecord::Kind kind = TraceRecord::Kind::op;
};

}  // namespace windrow
