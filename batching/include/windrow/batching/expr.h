// Expressions of one vertex: what the body of a vertex function computes with.
//
// An expression stands for a value that each vertex of a batch has, or each edge from it to its children, of the width
// that its type says; nothing is computed while a vertex function is traced. Parameters enter expressions as they are.
#pragma once

#include <concepts>
#include <initializer_list>
#include <memory>
#include <span>

#include "windrow/batching/parameters.h"
#include "windrow/ops/operators.h"

namespace windrow {

namespace ir {
class Trace;
}

/// A handle to a value of the function that is being traced. To use it after the trace, or in another one, throws
/// MisuseError.
class Expr {
 public:
  const Type& type() const { return type_; }
  Index width() const { return type_.width; }

 private:
  friend class ir::Trace;
  friend class Operand;
  Expr(std::weak_ptr<ir::Trace> trace, std::int32_t value, Type type)
      : trace_(std::move(trace)), value_(value), type_(type) {}

  std::weak_ptr<ir::Trace> trace_;
  std::int32_t value_;
  Type type_;
};

/// The same for int32 columns that were pulled.
class IndexExpr {
 public:
  const Type& type() const { return type_; }
  Index width() const { return type_.width; }

 private:
  friend class ir::Trace;
  IndexExpr(std::weak_ptr<ir::Trace> trace, std::size_t pull, Type type)
      : trace_(std::move(trace)), pull_(pull), type_(type) {}

  std::weak_ptr<ir::Trace> trace_;
  std::size_t pull_;
  Type type_;
};

/// An expression or a parameter.
class Operand {
 public:
  Operand(const Expr& expr) : trace_(expr.trace_), value_(expr.value_), type_(expr.type_) {}
  Operand(const Parameter& parameter);
  const Type& type() const { return type_; }

 private:
  friend class ir::Trace;

  std::weak_ptr<ir::Trace> trace_;  // empty for a parameter
  std::int32_t value_ = -1;
  std::uint64_t set_ = 0;
  std::size_t parameter_ = 0;
  Type type_;
};

/// Any operator, also one's own. It must compute a vertex from that vertex alone: elementwise or rowwise, with whole
/// operands that are parameters. Where some operands are of edges, those of the vertex are handed to each of its edges.
/// Throws MisuseError, naming the vertex function, the operator and the shapes, if that is not so or if they do not
/// fit.
Expr apply(const Operator& op, std::span<const Operand> in, std::span<const IndexExpr> indices = {},
           const Attributes& attributes = {});
Expr apply(const Operator& op, std::initializer_list<Operand> in, std::initializer_list<IndexExpr> indices = {},
           const Attributes& attributes = {});

// The operators of operators.h by their names. `+` of a vertex's value and a parameter of one row is add_bias.
Expr operator+(const Operand& x, const Operand& y);
Expr operator-(const Operand& x, const Operand& y);
Expr operator*(const Operand& x, const Operand& y);
Expr operator/(const Operand& x, const Operand& y);
Expr operator-(const Expr& x);
Expr operator*(double factor, const Expr& x);
Expr maximum(const Operand& x, const Operand& y);
Expr tanh(const Expr& x);
Expr sigmoid(const Expr& x);
Expr relu(const Expr& x);
Expr exp(const Expr& x);
Expr log(const Expr& x);
Expr square(const Expr& x);
Expr matmul(const Operand& x, const Operand& w);
Expr concat(std::span<const Operand> parts);
template <std::convertible_to<Operand>... Parts>
requires(sizeof...(Parts) > 0) Expr concat(const Parts&... parts) {
  const Operand operands[] = {parts...};
  return concat(std::span<const Operand>(operands));
}
/// Columns [begin, end).
Expr slice(const Expr& x, Index begin, Index end);
Expr row_sum(const Expr& x);
Expr softmax(const Expr& x);
Expr softmax_cross_entropy(const Expr& logits, const IndexExpr& label);
/// Of each element, with targets within [0, 1]; a loss is its row_sum or mean.
Expr binary_cross_entropy(const Expr& logits, const Expr& targets);
Expr embedding(const Operand& table, const IndexExpr& row);
/// The mask is drawn from three keys a vertex; see op::dropout.
Expr dropout(const Expr& x, const IndexExpr& keys, double rate, std::uint64_t seed, std::uint32_t site);

Expr minimum(const Operand& x, const Operand& y);
Expr sqrt(const Expr& x);
Expr abs(const Expr& x);
Expr softplus(const Expr& x);
Expr log_sigmoid(const Expr& x);
Expr log_softmax(const Expr& x);
Expr pick(const Expr& x, const IndexExpr& column);
/// Of the columns, of which there must be some.
Expr mean(const Expr& x);
Expr row_max(const Expr& x);
Expr row_dot(const Expr& x, const Expr& y);
Expr squared_distance(const Expr& x, const Expr& y);
Expr mul_columns(const Expr& x, const Expr& factor);
/// The matrices in x have so many rows; the other sizes follow from the widths.
Expr matmul_each(const Expr& x, const Expr& y, Index rows);
Expr matmul_each_nt(const Expr& x, const Expr& y, Index rows);
Expr conv2d(const Expr& images, const Operand& filters, const op::Window2d& window);
Expr max_pool2d(const Expr& images, const op::Window2d& window);
Expr add_channel_bias(const Expr& images, const Operand& bias);

// Between a vertex and the edges to its children; see Vertex::each.
/// The sum over all children, first to last; zero for a vertex without.
Expr sum_children(const Expr& x);
Expr mean_children(const Expr& x);
/// Of each column the maximum over all children, NaN if one is; zero for a vertex without. Its gradient goes to the
/// first child that has it.
Expr max_children(const Expr& x);
/// The vertex's value for each of its edges; the same that apply() does by itself.
Expr to_children(const Expr& x);

}  // namespace windrow
