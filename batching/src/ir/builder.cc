#include "ir/builder.h"

#include <algorithm>

namespace windrow::ir {
namespace {

Index end_of(const Node& sum, const std::vector<Node>& nodes, std::size_t k) {
  return sum.at[k] + nodes[at(sum.in[k])].type.width;
}

/// Equal nodes have equal hashes. Fields that are left out cause collisions, not errors.
std::size_t hash_of(const Node& node) {
  std::size_t hash = static_cast<std::size_t>(node.code);
  const auto mix = [&](std::size_t more) { hash = hash * 1'000'003 + more; };
  mix(static_cast<std::size_t>(node.vertex_type));
  mix(node.number);
  mix(std::hash<const void*>()(node.op));
  mix(static_cast<std::size_t>(node.type.width));
  for (Value in : node.in) mix(at(in));
  return hash;
}

}  // namespace

Builder::Builder(const Function& function, std::vector<Node> nodes) : function_(function) {
  for (Node& node : nodes) append(std::move(node));
}

Value Builder::add(Node node) {
  const auto [first, last] = by_hash_.equal_range(hash_of(node));
  for (auto known = first; known != last; ++known) {
    if (at(known->second) == node) return known->second;
  }
  return append(std::move(node));
}

Value Builder::append(Node node) {
  const auto value = static_cast<Value>(nodes_.size());
  by_hash_.emplace(hash_of(node), value);
  nodes_.push_back(std::move(node));
  return value;
}

std::vector<Node> Builder::take() {
  by_hash_.clear();
  return std::move(nodes_);
}

Value Builder::fill(int vertex_type, const Type& type, double constant) {
  return add({.code = Code::fill, .type = type, .vertex_type = vertex_type, .constant = constant});
}

bool Builder::vanishes(const Operator& op, const std::vector<Value>& in) const {
  for (std::size_t k = 0; k < in.size(); ++k) {
    if (k < 32 && (op.zero >> k & 1u) != 0 && at(in[k]).zero()) return true;
  }
  return false;
}

Value Builder::slice(Value x, Index begin, Index end) {
  const Node& node = at(x);
  if (begin == 0 && end == node.type.width) return x;
  if (node.is(op::slice)) {
    const Index from = node.attributes.sizes[0];
    return slice(node.in[0], from + begin, from + end);
  }
  if (node.code == Code::sum) {  // the slice may lie within one term, or meet none
    std::vector<std::size_t> meets;
    for (std::size_t k = 0; k < node.in.size(); ++k) {
      if (node.at[k] < end && begin < end_of(node, nodes_, k)) meets.push_back(k);
    }
    if (meets.empty() && node.of_vertices()) return fill(node.vertex_type, {node.type.rows, end - begin}, 0);
    if (meets.size() == 1) {
      const std::size_t k = meets[0];
      if (node.at[k] <= begin && end <= end_of(node, nodes_, k)) {
        return slice(node.in[k], begin - node.at[k], end - node.at[k]);
      }
    }
  }
  return add({.code = Code::apply,
              .type = {node.type.rows, end - begin},
              .vertex_type = node.vertex_type,
              .op = &op::slice,
              .in = {x},
              .attributes = op::columns(begin, end)});
}

Value Builder::sum(const std::vector<Term>& terms, const Type& type, int vertex_type) {
  Node node{.code = Code::sum, .type = type, .vertex_type = vertex_type};
  for (const Term& term : terms) {
    if (at(term.value).zero()) continue;
    node.in.push_back(term.value);
    node.at.push_back(term.at);
  }
  if (node.in.empty() && !type.rows.counted()) return fill(vertex_type, type, 0);
  if (node.in.size() == 1 && at(node.in[0]).type == type) return node.in[0];
  return add(std::move(node));
}

Value Builder::concat(const std::vector<Value>& parts, const Type& type, int vertex_type) {
  std::vector<Term> terms;
  Index column = 0;
  for (Value part : parts) {
    const Index width = at(part).type.width;
    const bool neighbours = !terms.empty() && at(part).is(op::slice) && at(terms.back().value).is(op::slice) &&
                            at(part).in == at(terms.back().value).in &&
                            at(part).attributes.sizes[0] == at(terms.back().value).attributes.sizes[1];
    if (neighbours) {
      const Node& before = at(terms.back().value);
      terms.back().value = slice(before.in[0], before.attributes.sizes[0], at(part).attributes.sizes[1]);
    } else {
      terms.push_back({part, column});
    }
    column += width;
  }
  return sum(terms, type, vertex_type);
}

Value Builder::rows_of(Value parameter, Index begin, Index end) {
  if (begin == 0 && at(parameter).type.rows == Rows::count(end)) return parameter;
  return apply(op::transpose, {slice(apply(op::transpose, {parameter}), begin, end)});
}

std::optional<Value> Builder::product_of_parts(Value x, Value w) {
  const Node node = at(x);
  if (node.code != Code::sum || !node.of_vertices()) return std::nullopt;
  Index width = 0;
  for (Value part : node.in) width += at(part).type.width;
  if (width >= node.type.width) return std::nullopt;
  std::vector<Term> terms;
  for (std::size_t k = 0; k < node.in.size(); ++k) {
    const Index end = end_of(node, nodes_, k);
    terms.push_back({apply(op::matmul, {node.in[k], rows_of(w, node.at[k], end)}), 0});
  }
  return sum(terms, {node.type.rows, at(w).type.width}, node.vertex_type);
}

Value Builder::apply(const Operator& op, std::vector<Value> in, std::vector<std::size_t> indices,
                     const Attributes& attributes, int vertex_type) {
  Node node{.code = Code::apply,
            .type = {Rows::vertices(), 0},
            .vertex_type = vertex_type,
            .op = &op,
            .in = std::move(in),
            .indices = std::move(indices),
            .attributes = attributes};
  for (Value value : node.in) {
    if (at(value).of_vertices()) node.vertex_type = at(value).vertex_type;
  }
  node.type = infer(op, signature_of(function_, nodes_, node));
  if (!node.of_vertices()) node.vertex_type = -1;
  const auto zero = [&](std::size_t k) { return at(node.in[k]).zero(); };
  if (node.of_vertices() && vanishes(op, node.in)) return fill(node.vertex_type, node.type, 0);
  if (&op == &op::add) return sum({{node.in[0], 0}, {node.in[1], 0}}, node.type, node.vertex_type);
  if (&op == &op::concat) return concat(node.in, node.type, node.vertex_type);
  if (&op == &op::slice) return slice(node.in[0], attributes.sizes[0], attributes.sizes[1]);
  if (&op == &op::sub && zero(1)) return node.in[0];
  if (&op == &op::sub && zero(0)) return apply(op::neg, {node.in[1]});
  if (&op == &op::transpose && at(node.in[0]).is(op::transpose)) return at(node.in[0]).in[0];
  if (&op == &op::matmul_nt && node.of_vertices()) {
    return apply(op::matmul, {node.in[0], apply(op::transpose, {node.in[1]})});
  }
  if (&op == &op::matmul) {
    if (const auto parts = product_of_parts(node.in[0], node.in[1])) return *parts;
  }
  return add(std::move(node));
}

}  // namespace windrow::ir
