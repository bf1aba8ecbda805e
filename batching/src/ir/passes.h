// Makes programs of vertex functions, and changes them. Pure functions.
#pragma once

#include <memory>
#include <vector>

#include "windrow/batching/backend/program.h"

namespace windrow::ir {

enum class Specialise { yes, no };
/// What a program is for: with `inference` it has no dropout.
enum class Use { training, inference };
/// Makes a program without gradients. With Specialise::no, the types in `own` have all children, too.
Program specialise(std::shared_ptr<const Function> function, const ProgramTypes& types, Specialise how, Use use);

/// Replaces the states of edges that are only multiplied with a row of their vertex (row_dot), and scaled and summed
/// over the edges (mul_columns, sum_children), by nodes that read them where they were computed. So attention copies no
/// keys and values. In inference, so is a state that is only added to a row handed on by the vertex, as in additive
/// attention: it is copied within a tile. In training, its gradient needs a row for each edge, where its copy lies
/// before. A state that a vertex type also uses in another way is gathered by this type as before.
Program read_in_place(const Program& program, Use use);

/// By number.
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
