// Applying operators to expressions, and operators that are not in expression_operators.h.
#include "windrow/batching/expr.h"

#include "ir/tracing.h"

namespace windrow {

Operand::Operand(const Parameter& parameter)
    : set_(parameter.set_), parameter_(parameter.number_), type_(parameter.type_) {}

Expr apply(const Operator& op, std::span<const Operand> in, std::span<const IndexExpr> indices,
           const Attributes& attributes) {
  return ir::Tracing::of(std::string(op.name.text()), in, indices)->apply(op, in, indices, attributes);
}
Expr apply(const Operator& op, std::initializer_list<Operand> in, std::initializer_list<IndexExpr> indices,
           const Attributes& attributes) {
  return apply(op, std::span(in.begin(), in.size()), std::span(indices.begin(), indices.size()), attributes);
}

Expr ExprTypes::apply(const Operator& op, const Operand&, std::initializer_list<Operand> in,
                      std::initializer_list<IndexExpr> indices, const Attributes& attributes) {
  return windrow::apply(op, in, indices, attributes);
}
Index ExprTypes::width(const Expr& x) { return x.width(); }

Expr operator+(const Operand& x, const Operand& y) {
  const auto bias = [](const Type& type) { return type.rows == Rows::count(1); };
  if (bias(y.type()) && !bias(x.type())) return apply(op::add_bias, {x, y});
  if (bias(x.type()) && !bias(y.type())) return apply(op::add_bias, {y, x});
  return apply(op::add, {x, y});
}
Expr operator-(const Operand& x, const Operand& y) { return apply(op::sub, {x, y}); }
Expr operator*(const Operand& x, const Operand& y) { return apply(op::mul, {x, y}); }
Expr operator/(const Operand& x, const Operand& y) { return apply(op::div, {x, y}); }
Expr concat(std::span<const Operand> parts) { return apply(op::concat, parts); }
Expr embedding(const Operand& table, const IndexExpr& row) { return apply(op::embedding, {table}, {row}); }
Expr mean(const Expr& x) {
  if (x.width() == 0) throw MisuseError("mean: operand " + to_string(x.type()) + "; expected a column or more");
  return 1 / static_cast<double>(x.width()) * row_sum(x);
}

namespace {

std::shared_ptr<ir::Tracing> tracing_of(const char* what, const Expr& x) {
  const Operand operand(x);
  return ir::Tracing::of(what, {&operand, 1}, {});
}

}  // namespace

Expr ExprTypes::dropout(const Expr& x, const Dropout& how) { return tracing_of("dropout", x)->dropout(x, how); }

Expr sum_children(const Expr& x) { return tracing_of("sum_children", x)->over_children(op::segment_sum, x); }
Expr mean_children(const Expr& x) {
  const auto tracing = tracing_of("mean_children", x);
  const Expr sum = tracing->over_children(op::segment_sum, x);
  return sum * apply(op::spread_columns, {tracing->share_of_child()}, {}, op::to_width(x.width()));
}
Expr max_children(const Expr& x) { return tracing_of("max_children", x)->over_children(op::segment_max, x); }
Expr to_children(const Expr& x) { return tracing_of("to_children", x)->to_children(x); }

}  // namespace windrow
