// A scope for many pushes in a row.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include "windrow/engine/engine.h"

namespace windrow {

/// While a BulkScope exists, its thread publishes pushed ops to busy workers in groups of up to 64 instead of 8, so a
/// push seldom contends with a worker. Order, errors and waits do not change. Idle workers still see each op at once;
/// all workers see all ops at the end of the scope, and when this thread waits. So a thread may block inside a scope on
/// whatever its ops do.
///
/// The thread that pushes must create and destroy the scope; the engine must outlive it. Scopes nest. They make a
/// difference with policy `pool` only.
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
