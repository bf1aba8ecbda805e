// Passes of planning besides the choice of steps (steps.h).
#pragma once

#include "windrow/batching/internal/plan.h"

namespace windrow {

/// The phase of each node; meaningless for nodes that belong to no vertex.
std::vector<Phase> phases_of(const ir::Program& program, const PlanOptions& options);

/// The last phase of its vertex type that writes values of vertices which the step reads; Phase::eager if it reads
/// none.
Phase last_phase(const Plan& plan, const TensorStep& step);

/// Lets values of a vertex type use the same columns of a matrix at different times. Only the steps of a vertex, or of
/// its edges, write and read its rows of a value, and these steps run in the order of the plan. So a value may take the
/// place of another value after the last step that uses the other value, independently of the progress of other rows.
/// The rest of the plan must be complete.
void share_memory(Plan& plan);

/// The last pass, when all steps are known. Arranges the memory of tiles, and fills in TypePlan::cost, costs and
/// tensors, and TensorStep::after.
void finish(Plan& plan);

}  // namespace windrow
