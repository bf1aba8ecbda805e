// Programs: a vertex function specialised for the vertex types that occur, with its gradients.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <algorithm>

#include "windrow/batching/internal/ir.h"

namespace windrow::ir {

/// The vertex types that a program computes. Both lists ascend.
struct ProgramTypes {
  std::vector<VertexType> own;      ///< computed without the children and indices that such vertices lack
  std::vector<VertexType> general;  ///< with all children and indices; computes all other types of its kind
  friend bool operator==(const ProgramTypes&, const ProgramTypes&) = default;
};

/// The nodes of all vertex types in one list. Nodes that belong to no vertex are shared by all types.
struct Program {
  std::shared_ptr<const Function> function = {};
  std::vector<VertexType> types = {};  // sorted
  std::vector<char> general = {};      // of each: whether its vertices may lack children and indices
  bool specialised = true;             // false: vertices are computed with all children; missing ones are zero
  std::vector<Node> nodes = {};        // all of them needed; operands precede their users
  /// By vertex type, then by number in the function.
  std::vector<std::vector<Value>> losses = {}, pushes = {};
  /// Rows of the gradient of a table, from a lookup.
  struct Rows {
    enum class Of : std::uint8_t { parameter, tensor } of;
    std::size_t number;
    std::size_t index_pull;
    Value rows;
  };
  std::vector<Rows> rows = {};

  /// The number of the type in `types` that computes vertices of that type.
  std::uint32_t number_of(VertexType type) const {
    const VertexType own = specialised ? type : with_all_children(*function, type);
    auto found = std::lower_bound(types.begin(), types.end(), own);
    if (found == types.end() || *found != own) {
      found = std::lower_bound(types.begin(), types.end(), ir::general(*function, type));
    }
    return static_cast<std::uint32_t>(found - types.begin());
  }
  /// Whether vertices computed as this type may lack a child.
  bool lacks_children(std::size_t type) const { return !specialised || general[type] != 0; }
  /// Whether vertices computed as this type may lack that index.
  bool lacks_index(int type, std::size_t pull) const {
    const IndexField& field = function->index_pulls[pull];
    return field.optional && (general[static_cast<std::size_t>(type)] != 0 || !field.has_type_bit());
  }
  const Node& at(Value value) const { return nodes[ir::at(value)]; }
};

}  // namespace windrow::ir
