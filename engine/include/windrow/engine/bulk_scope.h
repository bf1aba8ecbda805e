// Many pushes in a row.
#pragma once

#include "windrow/engine/engine.h"

namespace windrow {

/// As long as it lives, workers that have other work see what its thread pushes up to 64 ops at a time, instead of
/// eight, so that a push seldom meets one. Nothing else changes: order, errors and waits are as without it; a worker
/// that has nothing else to do sees each op at once, and all do at the end of the scope and when this thread waits. So
/// inside a scope a thread may block for whatever its ops do.
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
