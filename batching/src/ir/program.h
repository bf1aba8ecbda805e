// Programs: a vertex function specialised for the types of vertices there are, with its gradients.
#pragma once

#include <algorithm>

#include "ir/ir.h"

namespace windrow::ir {

/// Which types of vertices a program computes. Both lists ascend.
struct ProgramTypes {
  std::vector<VertexType> own;      ///< what such vertices lack is not computed
  std::vector<VertexType> general;  ///< with all children and indices: for vertices of all other types of that kind
  friend bool operator==(const ProgramTypes&, const ProgramTypes&) = default;
};

/// The nodes of all vertex types in one list. Nodes that belong to no vertex are shared by all types.
struct Program {
  std::shared_ptr<const Function> function = {};
  std::vector<VertexType> types = {};  // sorted
  std::vector<char> general = {};      // of each: whether its vertices may lack children and indices
  bool specialised = true;        // else a vertex is computed as if it had all children; those it lacks are zero
  std::vector<Node> nodes = {};        // all of them needed; operands before what uses them
  /// Of each vertex type, by number in the function.
  std::vector<std::vector<Value>> losses = {}, pushes = {};
  /// Rows of a gradient that a lookup left.
  struct Rows {
    enum class Of : std::uint8_t { parameter, tensor } of;
    std::size_t number;
    std::size_t index_pull;
    Value rows;
  };
  std::vector<Rows> rows = {};

  /// Of the type that vertices of that type are computed as.
  std::uint32_t number_of(VertexType type) const {
    const VertexType own = specialised ? type : with_all_children(*function, type);
    auto found = std::lower_bound(types.begin(), types.end(), own);
    if (found == types.end() || *found != own) {
      found = std::lower_bound(types.begin(), types.end(), ir::general(*function, type));
    }
    return static_cast<std::uint32_t>(found - types.begin());
  }
  /// Whether vertices of a type may lack a child that they are computed with.
  bool lacks_children(std::size_t type) const { return !specialised || general[type] != 0; }
  /// The same of that index.
  bool lacks_index(int type, std::size_t pull) const {
    return general[static_cast<std::size_t>(type)] != 0 && function->index_pulls[pull].optional;
  }
  const Node& at(Value value) const { return nodes[ir::at(value)]; }
};

enum class Specialise { yes, no };
/// Without gradients. By `no`, types of their own have all children too.
Program specialise(std::shared_ptr<const Function> function, const ProgramTypes& types, Specialise how);

/// The same with fewer products: those of one value with several parameters become one, by the parameters side by side;
/// and so do sums of them, such as the gates of an LSTM that each add a product of the input and one of the state.
Program pack_products(const Program& program);

/// With nodes for the gradients of the sum of all losses and of those outputs times what their gradients are given to
/// be. Throws MisuseError for an operator that has none, and if there is no loss and no such output.
Program differentiate(const Program& program, const std::vector<std::size_t>& outputs);

/// Drops the nodes that no loss, output or gradient needs.
void drop_unneeded(Program& program);

}  // namespace windrow::ir
