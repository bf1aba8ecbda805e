// Tiles and costs: the part of planning that comes last, when all steps are known.
#pragma once

#include "windrow/batching/backend/plan.h"

namespace windrow {

/// Arranges the memory of tiles, and fills in TypePlan::cost, costs and tensors, and TensorStep::after.
void finish(Plan& plan);

}  // namespace windrow
