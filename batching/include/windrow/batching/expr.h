// Expressions: the values with which the body of a vertex function computes.
//
// An expression stands for a value that every vertex of a batch has, or every edge from a vertex to its children; its
// type says which, and how wide it is. Nothing is computed while a vertex function is traced. Parameters can be
// operands directly. There is no empty expression: collect them in a vector by push_back().
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <concepts>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "windrow/batching/expression_operators.h"
#include "windrow/batching/parameters.h"
#include "windrow/ops/operators.h"

namespace windrow {

namespace ir {
class Tracing;
}

class Expr;
class IndexExpr;
class Operand;

/// For the operators of expression_operators.h.
struct ExprTypes {
  using Result = Expr;
  using Value = Expr;
  using Input = Operand;
  using Indices = IndexExpr;
  static Expr apply(const Operator& op, const Operand&, std::initializer_list<Operand> in,
                    std::initializer_list<IndexExpr> indices = {}, const Attributes& attributes = {});
  static Expr elementwise(const Operator& op, const Operand& x, const Operand& y);
  static Expr dropout(const Expr& x, const Dropout& how);
  static Index width(const Expr& x);
};

/// A handle to a value of the function that is being traced. Use after tracing, or in another function, throws
/// MisuseError.
class Expr : ExpressionOperators<ExprTypes> {
 public:
  const Type& type() const { return type_; }
  Index width() const { return type_.width; }

 private:
  friend class ir::Tracing;
  friend class Operand;
  Expr(std::weak_ptr<ir::Tracing> tracing, std::int32_t value, Type type)
      : tracing_(std::move(tracing)), value_(value), type_(type) {}

  std::weak_ptr<ir::Tracing> tracing_;
  std::int32_t value_;
  Type type_;
};

/// The same for int32 columns that were pulled.
class IndexExpr {
 public:
  const Type& type() const { return type_; }
  Index width() const { return type_.width; }

 private:
  friend class ir::Tracing;
  IndexExpr(std::weak_ptr<ir::Tracing> tracing, std::size_t pull, Type type)
      : tracing_(std::move(tracing)), pull_(pull), type_(type) {}

  std::weak_ptr<ir::Tracing> tracing_;
  std::size_t pull_;
  Type type_;
};

/// An expression or a parameter.
class Operand : ExpressionOperators<ExprTypes> {
 public:
  Operand(const Expr& expr) : tracing_(expr.tracing_), value_(expr.value_), type_(expr.type_) {}
  Operand(const Parameter& parameter);
  const Type& type() const { return type_; }

 private:
  friend class ir::Tracing;

  std::weak_ptr<ir::Tracing> tracing_;  // empty for a parameter
  std::int32_t value_ = -1;
  std::uint64_t set_ = 0;
  std::size_t parameter_ = 0;
  std::shared_ptr<const std::string> name_;  // of a parameter
  Type type_;
};

WINDROW_DECLARE_EXPRESSION_OPERATORS(ExprTypes);

/// Applies any operator, built-in or user-defined. It must compute each vertex from that vertex alone: elementwise, or
/// rowwise with parameters as its `whole` operands. If some operands are values of edges, operands of the vertex are
/// handed to each of its edges. A parameter of one row where the operator takes a row for each vertex counts as that
/// row for each; in an elementwise operator, a parameter of one element counts as that element for all columns. Throws
/// MisuseError, naming the vertex function, the operator and the shapes, if the operator or the shapes do not fit, and
/// if no operand is an expression or index. Lists of parameters alone go to apply() of lazy_weight.h, which overload
/// resolution prefers since it is no template.
Expr apply(const Operator& op, std::span<const Operand> in, std::span<const IndexExpr> indices = {},
           const Attributes& attributes = {});
template <class = void>
Expr apply(const Operator& op, std::initializer_list<Operand> in, std::initializer_list<IndexExpr> indices = {},
           const Attributes& attributes = {});

// Operators beside those of expression_operators.h. All throw as apply() does.
/// The operands side by side. If one is a value of edges, so is the result.
Expr concat(std::span<const Operand> parts);
Expr concat(std::span<const Expr> parts);
template <class = void>  // see apply()
Expr concat(std::initializer_list<Operand> parts) {
  return concat(std::span(parts.begin(), parts.size()));
}
template <std::convertible_to<Operand>... Parts>
requires(sizeof...(Parts) > 0) Expr concat(const Parts&... parts) {
  const Operand operands[] = {parts...};
  return concat(std::span<const Operand>(operands));
}
Expr embedding(const Operand& table, const IndexExpr& row);
/// The sum of the rows of the table that the columns of `rows` name; -1 for none.
Expr embedding_bag(const Operand& table, const IndexExpr& rows);
/// The mean over the columns. Throws MisuseError for width 0.
Expr mean(const Expr& x);

// Between a vertex and the edges to its children; see Vertex::each. All throw MisuseError in a function of fixed arity.
/// The sum over all children, first to last; zero for a vertex without children.
Expr sum_children(const Expr& x);
Expr mean_children(const Expr& x);
/// The maximum of each column over all children, NaN if one is NaN; zero for a vertex without children. Its gradient
/// goes to the first child that has the maximum.
Expr max_children(const Expr& x);
/// The k largest elements of each column over all children: first the maximum of each column, then the second largest
/// of each column, and so on; zeros where there are fewer than k children. Elements must be above -1e29. Throws
/// MisuseError for k below 1.
Expr k_max_children(const Expr& x, Index k);
/// log(sum of exp(x)) of each column over all children, -inf if all are; zero for a vertex without children.
Expr log_sum_exp_children(const Expr& x);
/// The softmax over all children, for each column. A child with -1e30 or -inf in a column gets 0 there. If all children
/// have -1e30, they get equal shares; if all have -inf, they get NaN.
Expr softmax_children(const Expr& x);
/// Hands the vertex's value to each of its edges; apply() does so implicitly.
Expr to_children(const Expr& x);

// Functions of lists; lazy.h and lazy_cell.h have the same for lazy expressions. A list is a vector, an array, a span,
// or a list in braces, as in windrow::softmax({x, y}).
//
// A value of the vertex is one term of the list. A value of edges stands for as many terms as the vertex has children,
// so the vertex attends to all its children and to itself by
//
//   dot_attention(own, {v.each(h), own}, {v.each(h), own})
//
// (attend() of windrow/models/layers.h has other scores), and to its children by a query that is a parameter of 1 x h
// by
//
//   sum_children(softmax_children(row_dot(v.each(h), query)) * v.each(h))
//
// and f_children(x) is f({x}). The gather of a missing child is a term of zeros. Without terms the result is zero: a
// list of values of edges has no terms at a vertex without children. The expressions of a list have one width. All
// throw MisuseError, naming the vertex function, for an empty list and for different widths.
Expr sum(std::span<const Expr> terms);
Expr mean(std::span<const Expr> terms);
/// The maximum of each column, NaN if one is NaN. Of equal terms the first one gets the gradient.
Expr max(std::span<const Expr> terms);
/// log(sum of exp(x)) of each column; finite for finite terms, -inf if all are.
Expr log_sum_exp(std::span<const Expr> terms);
/// The softmax over all terms, for each column. Returns an expression for each of the list: a value of edges for a
/// value of edges. For terms of -1e30 and -inf see softmax_children().
std::vector<Expr> softmax(std::span<const Expr> terms);
/// The k largest terms of each column, in the order of the list; the result is k times as wide as a term. Takes values
/// of the vertex only; for values of edges, see k_max_children(). Throws MisuseError for k below 1 and above the length
/// of the list.
Expr k_max(std::span<const Expr> terms, Index k);
// Not by ListOf: of mean({x}) it would make mean(x), the mean over the columns.
inline Expr sum(std::initializer_list<Expr> terms) { return sum(std::span(terms.begin(), terms.size())); }
inline Expr mean(std::initializer_list<Expr> terms) { return mean(std::span(terms.begin(), terms.size())); }
inline Expr max(std::initializer_list<Expr> terms) { return max(std::span(terms.begin(), terms.size())); }
inline Expr log_sum_exp(std::initializer_list<Expr> terms) {
  return log_sum_exp(std::span(terms.begin(), terms.size()));
}
inline std::vector<Expr> softmax(std::initializer_list<Expr> terms) {
  return softmax(std::span(terms.begin(), terms.size()));
}
inline Expr k_max(std::initializer_list<Expr> terms, Index k) {
  return k_max(std::span(terms.begin(), terms.size()), k);
}
/// The sum of each value times its weight, an expression of width 1. Throws MisuseError also for lists of two lengths,
/// and unless a value and its weight are both of edges or both of the vertex.
Expr weighted_sum(ListOf<Expr> weights, ListOf<Expr> values);
/// The sum of the values, weighted by the softmax of the dot products of their keys with the query, a value of the
/// vertex. `masks`, of width 1, are added to the dot products, if there are any: -1e30 hides a key, 0 does not. Throws
/// MisuseError as weighted_sum() does, and for a query that is not as wide as the keys. attend() of
/// windrow/models/layers.h scales the query, and has other scores.
Expr dot_attention(const Expr& query, ListOf<Expr> keys, ListOf<Expr> values, ListOf<Expr> masks = {});

}  // namespace windrow
