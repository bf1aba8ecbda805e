// A scope for many pushes in a row.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include "windrow/engine/engine.h"

namespace windrow {

/// Does nothing: a thread that pushes far ahead of the workers hands ops over in larger groups by itself.
class [[deprecated("remove the scope: pushes adapt by themselves")]] BulkScope {
 public:
  explicit BulkScope(Engine&) {}
  ~BulkScope() {}
  BulkScope(const BulkScope&) = delete;
  BulkScope& operator=(const BulkScope&) = delete;
};

}  // namespace windrow
