// Makes programs of vertex functions, and changes them. Pure functions.
#pragma once

#include <memory>
#include <vector>

#include "windrow/batching/internal/program.h"

namespace windrow::ir {

enum class Specialise { yes, no };
/// The purpose of a program. For `inference`, it has no dropout.
enum class Use { training, inference };
/// Makes a program without gradients. With Specialise::no, the types in `own` have all children, too.
Program specialise(std::shared_ptr<const Function> function, const ProgramTypes& types, Specialise how, Use use);

/// Replaces gathered states of edges by nodes that read them where they were computed, so that attention copies no keys
/// and values. The states may only be multiplied with a row of their vertex (row_dot), or scaled and summed over the
/// edges (mul_columns, sum_children). In inference, they may also be added to a row of the vertex, as in additive
/// attention; then they are copied within a tile. (In training, the gradient of that sum needs a row for each edge
/// anyway.) A vertex type that uses a state in another way still gathers it.
Program read_in_place(const Program& program, Use use);

/// Outputs and parameters, by number.
struct Differentiated {
  const std::vector<std::size_t>& outputs;  ///< beside the losses
  const std::vector<std::size_t>& frozen;   ///< parameters that count as constants
};
/// Adds nodes for the gradients of: the sum of all losses, plus each of these outputs weighted by its given gradient.
/// Throws MisuseError for an operator without a gradient, and if there is neither a loss nor such an output.
Program differentiate(const Program& program, const Differentiated& what);

/// Drops the nodes that no loss, output or gradient needs.
void drop_unneeded(Program& program);

}  // namespace windrow::ir
