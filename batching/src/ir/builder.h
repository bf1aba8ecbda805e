// Adds nodes to a program and simplifies it: folds zeros, merges equal nodes, cancels splits against joins.
#pragma once

#include <optional>
#include <unordered_map>

#include "windrow/batching/internal/ir.h"

namespace windrow::ir {

/// Simplifications:
///   - results that are zero because an operand is zero (Operator::zero), and sums with zeros, are folded;
///   - additions and concatenations become sums, so that each part can be computed in its place;
///   - slices of slices, of sums, and of concatenated neighbours are merged;
///   - products with a transposed parameter use a transposed copy, which is made once for each minibatch;
///   - products of a row with parts that are zero use only the corresponding rows of the parameter.
class Builder {
 public:
  explicit Builder(const Function& function, std::vector<Node> nodes = {});

  const Node& at(Value value) const { return nodes_[ir::at(value)]; }
  /// Adds the node, or returns an equal existing one.
  Value add(Node node);
  /// Adds the node even if an equal one exists.
  Value append(Node node);
  /// Returns all nodes and leaves the builder empty.
  std::vector<Node> take();
  Value fill(int vertex_type, const Type& type, double constant);
  /// The types fit, since those of the traced nodes did. `vertex_type` is the result's, if no operand determines it.
  Value apply(const Operator& op, std::vector<Value> in, std::vector<std::size_t> indices = {},
              const Attributes& attributes = {}, int vertex_type = -1);
  /// Whether the result is zero because an operand is zero.
  bool vanishes(const Operator& op, const std::vector<Value>& in) const;
  Value slice(Value x, Index begin, Index end);

  struct Term {
    Value value;
    Index at;  // its first column
  };
  /// The sum of the terms, of type `type`; the term's value itself if a single one covers the whole type.
  Value sum(const std::vector<Term>& terms, const Type& type, int vertex_type);

 private:
  Value concat(const std::vector<Value>& parts, const Type& type, int vertex_type);
  /// The product, if x is a sum that leaves columns zero; none otherwise.
  std::optional<Value> product_of_parts(Value x, Value w);
  Value rows_of(Value parameter, Index begin, Index end);

  const Function& function_;
  std::vector<Node> nodes_;
  std::unordered_multimap<std::size_t, Value> by_hash_;
};

}  // namespace windrow::ir
