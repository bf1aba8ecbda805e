// Expressions, with which the body of a vertex function computes.
//
// An expression stands for a value that every vertex of a batch has, or every edge from a vertex to its children; its
// type says which, and how wide it is. Nothing is computed while a vertex function is traced. Parameters can be
// operands directly.
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

/// A handle to a value of the function that is being traced. Use after the trace, or in another trace, throws
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

/// Applies any operator, built-in or user-defined. It must compute each vertex from that vertex alone: elementwise, or
/// rowwise with parameters as its `whole` operands. If some operands are values of edges, operands of the vertex are
/// handed to each of its edges. Throws MisuseError, naming the vertex function, the operator and the shapes, if the
/// operator or the shapes do not fit, and if no operand is an expression or index.
Expr apply(const Operator& op, std::span<const Operand> in, std::span<const IndexExpr> indices = {},
           const Attributes& attributes = {});
Expr apply(const Operator& op, std::initializer_list<Operand> in, std::initializer_list<IndexExpr> indices = {},
           const Attributes& attributes = {});

// The operators of operators.h, by name. `+` of a vertex's value and a parameter of one row is add_bias. All throw as
// apply() does.
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
/// One value per element, for targets within [0, 1]; use its row_sum or mean as a loss.
Expr binary_cross_entropy(const Expr& logits, const Expr& targets);
Expr embedding(const Operand& table, const IndexExpr& row);
/// The mask is drawn from three keys per vertex; see op::dropout.
Expr dropout(const Expr& x, const IndexExpr& keys, double rate, std::uint64_t seed, std::uint32_t site);

Expr minimum(const Operand& x, const Operand& y);
Expr sqrt(const Expr& x);
Expr abs(const Expr& x);
Expr softplus(const Expr& x);
Expr log_sigmoid(const Expr& x);
Expr log_softmax(const Expr& x);
Expr pick(const Expr& x, const IndexExpr& column);
/// The mean over the columns. Throws MisuseError for width 0.
Expr mean(const Expr& x);
Expr row_max(const Expr& x);
Expr row_dot(const Expr& x, const Expr& y);
Expr squared_distance(const Expr& x, const Expr& y);
Expr mul_columns(const Expr& x, const Expr& factor);
/// `rows` is the number of rows of the matrices in x; the other sizes follow from the widths.
Expr matmul_each(const Expr& x, const Expr& y, Index rows);
Expr matmul_each_nt(const Expr& x, const Expr& y, Index rows);
Expr conv2d(const Expr& images, const Operand& filters, const op::Window2d& window);
Expr max_pool2d(const Expr& images, const op::Window2d& window);
Expr add_channel_bias(const Expr& images, const Operand& bias);

// Between a vertex and the edges to its children; see Vertex::each. All throw MisuseError in a function of fixed arity.
/// The sum over all children, first to last; zero for a vertex without children.
Expr sum_children(const Expr& x);
Expr mean_children(const Expr& x);
/// The maximum of each column over all children, NaN if one is NaN; zero for a vertex without children. Its gradient
/// goes to the first child that has the maximum.
Expr max_children(const Expr& x);
/// Hands the vertex's value to each of its edges; apply() does so implicitly.
Expr to_children(const Expr& x);

}  // namespace windrow
