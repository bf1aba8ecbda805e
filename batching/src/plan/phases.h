// Phases: the part of planning that decides when values are computed.
#pragma once

#include "windrow/batching/backend/plan.h"

namespace windrow {

/// By node; meaningless for nodes that belong to no vertex.
std::vector<Phase> phases_of(const ir::Program& program, const PlanOptions& options);

}  // namespace windrow
