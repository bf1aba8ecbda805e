// Many pushes in a row.
#pragma once

#include "windrow/engine/engine.h"

namespace windrow {

/// As long as it lives, what its thread pushes is handed to the workers some ops at a time, so that a push does not
/// meet a worker at each op. Nothing else changes: order, errors and waits are as without it. What is not handed over
/// yet is handed over at the end of the scope and by this thread's waits, and workers look for it: those
/// without work within about a millisecond, others at every 32nd op. So inside a scope a thread may block for whatever
/// its ops do.
///
/// Made and ended by the thread that pushes; the engine outlives it. Scopes nest. Makes a difference with policy pool.
class BulkScope {
 public:
  /// Throws std::bad_alloc.
  explicit BulkScope(Engine& engine);
  ~BulkScope();
  BulkScope(const BulkScope&) = delete;
  BulkScope& operator=(const BulkScope&) = delete;

 private:
  Core& core_;
};

}  // namespace windrow
