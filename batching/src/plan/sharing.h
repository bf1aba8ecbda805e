// Sharing: the part of planning that lets values of a vertex type use the same columns of a matrix at different times.
//
// Only the steps of a vertex, or of its edges, write and read its rows of a value, and these steps run in the order of
// the plan. So a value may take the place of another one after the last step that uses the other one, independently of
// the progress of other rows.
#pragma once

#include "windrow/batching/internal/plan.h"

namespace windrow {

/// Assigns shared places. The plan must be complete otherwise.
void share_memory(Plan& plan);

}  // namespace windrow
