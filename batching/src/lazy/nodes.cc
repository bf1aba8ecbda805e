#include "lazy/nodes.h"

#include <iterator>

namespace windrow::lazy {

void Nodes::refuse_more() {
  throw MisuseError("a lazy graph of 2147483646 expressions; expected fewer between two calls of clear()");
}

const Nodes::Node* Nodes::find_early(NodeId id) const {
  const auto found = std::ranges::lower_bound(early_, id, {}, &Early::id);
  return found != early_.end() && found->id == id ? &found->node : nullptr;
}

const Nodes::Node& Nodes::early(NodeId id) const {
  const Node* const known = find_early(id);
  if (known == nullptr) throw Error("lazy expressions: a forgotten expression was used");
  return *known;
}

std::vector<NodeId> Nodes::operands_before(NodeId first) const {
  std::vector<NodeId> used;
  for (NodeId id = first; id < size(); ++id) {
    std::ranges::copy_if(operands(id), std::back_inserter(used), [&](NodeId operand) { return operand < first; });
  }
  std::ranges::sort(used);
  return used;
}

/// The cost is that of the nodes that are forgotten, since these are at least as many as the others.
bool Nodes::forget_unnamed(NodeId last_epoch) {
  constexpr NodeId few = 4096;
  const NodeId first = last_epoch, before = first - nodes_.first();
  if (before < few || before < remembered() - before || first == size()) return false;
  const std::vector<NodeId> used = operands_before(first);
  const auto needed = [&](NodeId id, const Node& node) {
    return node.handles > 0 || std::ranges::binary_search(used, id);
  };
  std::vector<Early> kept;
  std::ranges::copy_if(early_, std::back_inserter(kept), [&](const Early& one) { return needed(one.id, one.node); });
  for (NodeId id = nodes_.first(); id < first; ++id) {
    if (needed(id, nodes_[id])) kept.push_back({id, nodes_[id]});
  }
  // Nothing after this throws.
  early_ = std::move(kept);
  std::int32_t values = all_values.end(), indices = all_indices.end();
  for (NodeId id = size(); id-- > first;) {
    const bool has_values = key(id).op == nullptr || key(id).has_factor();
    (has_values ? values : indices) = nodes_[id].data;
  }
  operands_.forget_before(nodes_[first].operands);
  all_values.forget_before(values);
  all_indices.forget_before(indices);
  nodes_.forget_before(first);
  return true;
}

void Nodes::clear() {
  nodes_.clear();
  early_.clear();
  operands_.clear();
  all_indices.clear();
  all_values.clear();
  first_pending = 0;
}

}  // namespace windrow::lazy
