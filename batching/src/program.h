// Programs: a vertex function specialised for the types of vertices there are, with its gradients.
#pragma once

#include <algorithm>

#include "ir.h"

namespace windrow::ir {

/// The nodes of all vertex types in one list. Nodes that belong to no vertex are shared by all types.
struct Program {
  std::shared_ptr<const Function> function;
  std::vector<VertexType> types;  // sorted
  std::vector<Node> nodes;        // all of them needed; operands before what uses them
  /// Of each vertex type, by number in the function.
  std::vector<std::vector<Value>> losses, pushes;
  /// Rows of a gradient that a lookup left.
  struct Rows {
    enum class Of : std::uint8_t { parameter, tensor } of;
    std::size_t number;
    std::size_t index_pull;
    Value rows;
  };
  std::vector<Rows> rows;

  std::uint32_t number_of(VertexType type) const {
    return static_cast<std::uint32_t>(std::lower_bound(types.begin(), types.end(), type) - types.begin());
  }
  const Node& at(Value value) const { return nodes[ir::at(value)]; }
};

/// Without gradients.
Program specialise(std::shared_ptr<const Function> function, std::vector<VertexType> types);

/// With nodes for the gradients of the sum of all losses and of those outputs times what their gradients are given to
/// be. Throws MisuseError for an operator that has none, and if there is no loss and no such output.
Program differentiate(const Program& program, const std::vector<std::size_t>& outputs);

/// Drops the nodes that no loss, output or gradient needs.
void drop_unneeded(Program& program);

}  // namespace windrow::ir
