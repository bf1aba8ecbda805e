// Applying operators to expressions, and operators that are not in expression_operators.h.
#include "windrow/batching/expr.h"

#include <limits>

#include "ir/tracing.h"

namespace windrow {

Operand::Operand(const Parameter& parameter)
    : set_(parameter.set_), parameter_(parameter.number_), name_(parameter.name_), type_(parameter.type_) {}

Expr apply(const Operator& op, std::span<const Operand> in, std::span<const IndexExpr> indices,
           const Attributes& attributes) {
  return ir::Tracing::of(std::string(op.name.text()), in, indices)->apply(op, in, indices, attributes);
}
template <class>
Expr apply(const Operator& op, std::initializer_list<Operand> in, std::initializer_list<IndexExpr> indices,
           const Attributes& attributes) {
  return apply(op, std::span(in.begin(), in.size()), std::span(indices.begin(), indices.size()), attributes);
}
template Expr apply(const Operator&, std::initializer_list<Operand>, std::initializer_list<IndexExpr>,
                    const Attributes&);

Expr ExprTypes::apply(const Operator& op, const Operand&, std::initializer_list<Operand> in,
                      std::initializer_list<IndexExpr> indices, const Attributes& attributes) {
  return windrow::apply(op, in, indices, attributes);
}
Index ExprTypes::width(const Expr& x) { return x.width(); }

namespace {

std::shared_ptr<ir::Tracing> tracing_of(std::string_view what, const Operand& x) {
  return ir::Tracing::of(std::string(what), {&x, 1}, {});
}

/// Whether x is a column of vertices or edges, and `other` is wider. A parameter is none, since apply() takes it.
bool is_column(const Operand& x, const Operand& other) {
  return !x.type().rows.counted() && x.type().width == 1 && other.type().width != 1;
}

/// x, with a column spread over the width of `other`.
Operand in_shape_of(const Operand& other, const Operand& x) {
  if (!is_column(x, other)) return x;
  return apply(op::spread_columns, {x}, {}, op::to_width(other.type().width));
}

}  // namespace

Expr ExprTypes::elementwise(const Operator& op, const Operand& x, const Operand& y) {
  const bool product = &op == &op::mul;
  if (product && is_column(y, x)) return apply(op::mul_columns, x, {x, y});
  if (product && is_column(x, y)) return apply(op::mul_columns, y, {y, x});
  return apply(op, x, {in_shape_of(y, x), in_shape_of(x, y)});
}
Expr concat(std::span<const Operand> parts) { return apply(op::concat, parts); }
Expr embedding(const Operand& table, const IndexExpr& row) { return apply(op::embedding, {table}, {row}); }
Expr embedding_bag(const Operand& table, const IndexExpr& rows) { return apply(op::embedding_bag, {table}, {rows}); }
Expr mean(const Expr& x) {
  if (x.width() == 0) throw MisuseError("mean: operand " + to_string(x.type()) + "; expected a column or more");
  return 1 / static_cast<double>(x.width()) * row_sum(x);
}

Expr ExprTypes::dropout(const Expr& x, const Dropout& how) { return tracing_of("dropout", x)->dropout(x, how); }

Expr sum_children(const Expr& x) { return tracing_of("sum_children", x)->over_children(op::segment_sum, x); }
Expr mean_children(const Expr& x) {
  const auto tracing = tracing_of("mean_children", x);
  const Expr sum = tracing->over_children(op::segment_sum, x);
  return sum * apply(op::spread_columns, {tracing->share_of_child()}, {}, op::to_width(x.width()));
}
Expr max_children(const Expr& x) { return tracing_of("max_children", x)->over_children(op::segment_max, x); }
Expr k_max_children(const Expr& x, Index k) {
  if (k < 1) throw MisuseError("k_max_children: k " + std::to_string(k) + "; expected 1 or more");
  constexpr double chosen = 1e30;  // is subtracted from elements that were chosen
  const auto tracing = tracing_of("k_max_children", x);
  std::vector<Operand> tops = {max_children(x)};
  Expr left = x, unchosen = tracing->constant_of_edges(x.width(), 1);
  while (static_cast<Index>(tops.size()) < k) {
    const Expr first = stop_gradient(tracing->is_first_maximum(left));
    left = left - chosen * first;
    unchosen = unchosen - first;
    tops.push_back(max_children(left) * stop_gradient(relu(max_children(unchosen))));
  }
  return concat(tops);
}
Expr log_sum_exp_children(const Expr& x) {
  const Expr top = stop_gradient(max_children(x));
  // What is subtracted is finite: children that are all -inf have a sum of 0. It counts as 1, as that of no children,
  // and then `top` is the result, and none of them gets a gradient.
  constexpr double most = std::numeric_limits<float>::max();
  const Expr sum = sum_children(exp(x - to_children(clamp(top, -most, most))));
  return log(maximum(sum, tracing_of("log_sum_exp_children", x)->constant(x.width(), 1))) + top;
}
Expr softmax_children(const Expr& x) {
  const Expr shares = exp(x - to_children(stop_gradient(max_children(x))));
  return shares / to_children(sum_children(shares));
}
Expr to_children(const Expr& x) { return tracing_of("to_children", x)->to_children(x); }

}  // namespace windrow
