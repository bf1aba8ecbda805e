// Costs of the phases of a plan, counted once for all minibatches.
#pragma once

#include "plan/plan.h"

namespace windrow {

/// Fills in TypePlan::costs and TypePlan::tensors.
void count_costs(Plan& plan);

}  // namespace windrow
