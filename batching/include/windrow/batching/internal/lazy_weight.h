// Functions of parameters alone, for lazy expressions and, by Vertex::parameter, for vertex functions.
//
//   x = matmul(x, exp(windrow::LazyWeight(w)));
//   x = (x - slice(windrow::LazyWeight(means), 0, 8)) / exp(windrow::LazyWeight(row));
//   loss = loss + 0.01 * (graph.zeros(1) + column_sum(row_sum(square(windrow::LazyWeight(w)))));
//
// They are not recorded: a flush that uses them computes them once for all samples. A function with one row can be an
// operand wherever a parameter of one row can; see apply() in expr.h.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <initializer_list>
#include <memory>

#include "windrow/batching/expression_operators.h"
#include "windrow/batching/parameters.h"

namespace windrow {

class LazyWeight;
class Vertex;
namespace lazy {
class Weights;
}

/// For the operators of expression_operators.h.
struct LazyWeightTypes {
  struct NoIndices;
  using Result = LazyWeight;
  using Value = LazyWeight;
  using Input = LazyWeight;
  using Indices = NoIndices;
  static LazyWeight apply(const Operator& op, const LazyWeight& x, std::initializer_list<LazyWeight> in,
                          std::initializer_list<NoIndices> indices = {}, const Attributes& attributes = {});
  static LazyWeight elementwise(const Operator& op, const LazyWeight& x, const LazyWeight& y);
  static LazyWeight dropout(const LazyWeight& x, const Dropout& how);
  static Index width(const LazyWeight& x);
};

/// A parameter, or a function of parameters. A handle. Operators throw MisuseError for operands that do not fit, for
/// dropout, and for more than most_operations; lazy.h has the operators that combine one with an expression.
class LazyWeight : ExpressionOperators<LazyWeightTypes> {
 public:
  /// The most operations of one function, including those of its operands, which count each time they are used.
  static constexpr int most_operations = 1000;

  LazyWeight(const Parameter& parameter);
  const Type& type() const { return type_; }

 private:
  friend LazyWeightTypes;
  friend class lazy::Weights;
  friend Vertex;
  struct Made;
  LazyWeight(std::shared_ptr<const Made> made, Type type) : made_(std::move(made)), type_(type) {}

  std::shared_ptr<const Made> made_;
  Type type_;
};

struct LazyWeightTypes::NoIndices {};
WINDROW_DECLARE_EXPRESSION_OPERATORS(LazyWeightTypes);

/// Applies any operator to parameters alone. Throws MisuseError, naming the operator and the shapes, if the shapes do
/// not fit. Operands of an elementwise operator that have one row or one column are used for all rows or columns.
LazyWeight apply(const Operator& op, std::initializer_list<LazyWeight> in,
                 std::initializer_list<LazyWeightTypes::NoIndices> indices = {}, const Attributes& attributes = {});

}  // namespace windrow
