// Sharing: the part of planning that lets values of a vertex type lie in the same columns of a matrix, one after the
// other.
//
// A row of a value is written and read by the steps of its own vertex alone, or of its edges, and those come in the
// order of the plan: so a value may take the place of another one as soon as its last step is past, whatever other rows
// wait for.
#pragma once

#include "plan/plan.h"

namespace windrow {

/// For a plan that is otherwise complete.
void share_memory(Plan& plan);

}  // namespace windrow
