// Phases: the part of planning that decides when values are computed.
#pragma once

#include "windrow/batching/backend/plan.h"

namespace windrow {

/// By node; meaningless for nodes that belong to no vertex.
std::vector<Phase> phases_of(const ir::Program& program, const PlanOptions& options);

/// The last phase of its vertex type that writes what the step reads of the vertices; Phase::eager if it reads nothing
/// of them.
Phase last_phase(const Plan& plan, const TensorStep& step);

}  // namespace windrow
