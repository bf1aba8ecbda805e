// Adds nodes to a program, and simplifies as it goes: zeros fold away, equal nodes are one, splits and joins meet.
#pragma once

#include <optional>
#include <unordered_map>

#include "ir/ir.h"

namespace windrow::ir {

/// Whose nodes are simplified:
///   - what is zero because an operand is (Operator::zero), and sums with zeros;
///   - additions and concatenations, which become sums, so that each part can be computed in its place;
///   - slices of slices, of sums and of neighbours put together again;
///   - products with a transposed parameter, which become products with a transposed copy, made once a minibatch;
///   - products of a row of which parts are zero, which take the rows of the parameter that count.
class Builder {
 public:
  explicit Builder(const Function& function, std::vector<Node> nodes = {});

  const Node& at(Value value) const { return nodes_[ir::at(value)]; }
  /// The node, or the equal one that is there.
  Value add(Node node);
  /// The node, even if an equal one is there.
  Value append(Node node);
  /// All nodes; the builder is empty then.
  std::vector<Node> take();
  Value fill(int vertex_type, const Type& type, double constant);
  /// Types are inferred; they fit, since those of the traced nodes fit. `vertex_type` is that of the result, where no
  /// operand tells.
  Value apply(const Operator& op, std::vector<Value> in, std::vector<std::size_t> indices = {},
              const Attributes& attributes = {}, int vertex_type = -1);
  /// The result is zero because an operand is.
  bool vanishes(const Operator& op, const std::vector<Value>& in) const;
  Value slice(Value x, Index begin, Index end);

  struct Term {
    Value value;
    Index at;  // its first column
  };
  /// What sums to `type`: one value, if a single term covers it.
  Value sum(const std::vector<Term>& terms, const Type& type, int vertex_type);

 private:
  Value concat(const std::vector<Value>& parts, const Type& type, int vertex_type);
  /// A product of a sum that leaves columns at zero; none if x is no such sum.
  std::optional<Value> product_of_parts(Value x, Value w);
  Value rows_of(Value parameter, Index begin, Index end);

  const Function& function_;
  std::vector<Node> nodes_;
  std::unordered_multimap<std::size_t, Value> by_hash_;
};

}  // namespace windrow::ir
