// Deprecated: windrow/batching/backend/execution.h has the class that back ends derive from.
#pragma once
#include "windrow/engine/requirements.h"

#include "windrow/batching/backend/execution.h"

namespace windrow {

using Interpretation [[deprecated("derive from Execution")]] = Execution;

}  // namespace windrow
