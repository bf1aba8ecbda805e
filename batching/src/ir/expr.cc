// The operators of expressions.
#include "windrow/batching/expr.h"

#include "ir/ir.h"

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

Expr operator+(const Operand& x, const Operand& y) {
  const auto bias = [](const Type& type) { return type.rows == Rows::count(1); };
  if (bias(y.type()) && !bias(x.type())) return apply(op::add_bias, {x, y});
  if (bias(x.type()) && !bias(y.type())) return apply(op::add_bias, {y, x});
  return apply(op::add, {x, y});
}
Expr operator-(const Operand& x, const Operand& y) { return apply(op::sub, {x, y}); }
Expr operator*(const Operand& x, const Operand& y) { return apply(op::mul, {x, y}); }
Expr operator/(const Operand& x, const Operand& y) { return apply(op::div, {x, y}); }
Expr operator-(const Expr& x) { return apply(op::neg, {x}); }
Expr operator*(double factor, const Expr& x) { return apply(op::scale, {x}, {}, op::scaled_by(factor)); }
Expr maximum(const Operand& x, const Operand& y) { return apply(op::maximum, {x, y}); }
Expr tanh(const Expr& x) { return apply(op::tanh, {x}); }
Expr sigmoid(const Expr& x) { return apply(op::sigmoid, {x}); }
Expr relu(const Expr& x) { return apply(op::relu, {x}); }
Expr exp(const Expr& x) { return apply(op::exp, {x}); }
Expr log(const Expr& x) { return apply(op::log, {x}); }
Expr square(const Expr& x) { return apply(op::square, {x}); }
Expr matmul(const Operand& x, const Operand& w) { return apply(op::matmul, {x, w}); }
Expr concat(std::span<const Operand> parts) { return apply(op::concat, parts); }
Expr slice(const Expr& x, Index begin, Index end) { return apply(op::slice, {x}, {}, op::columns(begin, end)); }
Expr row_sum(const Expr& x) { return apply(op::row_sum, {x}); }
Expr softmax(const Expr& x) { return apply(op::softmax, {x}); }
Expr softmax_cross_entropy(const Expr& logits, const IndexExpr& label) {
  return apply(op::softmax_cross_entropy, {logits}, {label});
}
Expr binary_cross_entropy(const Expr& logits, const Expr& targets) {
  return apply(op::binary_cross_entropy, {logits, targets});
}
Expr embedding(const Operand& table, const IndexExpr& row) { return apply(op::embedding, {table}, {row}); }
Expr dropout(const Expr& x, const IndexExpr& keys, double rate, std::uint64_t seed, std::uint32_t site) {
  return apply(op::dropout, {x}, {keys}, op::dropout_by(rate, seed, site));
}

Expr minimum(const Operand& x, const Operand& y) { return apply(op::minimum, {x, y}); }
Expr sqrt(const Expr& x) { return apply(op::sqrt, {x}); }
Expr abs(const Expr& x) { return apply(op::abs, {x}); }
Expr softplus(const Expr& x) { return apply(op::softplus, {x}); }
Expr log_sigmoid(const Expr& x) { return apply(op::log_sigmoid, {x}); }
Expr log_softmax(const Expr& x) { return apply(op::log_softmax, {x}); }
Expr pick(const Expr& x, const IndexExpr& column) { return apply(op::pick, {x}, {column}); }
Expr mean(const Expr& x) {
  if (x.width() == 0) throw MisuseError("mean: operand " + to_string(x.type()) + "; expected a column or more");
  return 1 / static_cast<double>(x.width()) * row_sum(x);
}
Expr row_max(const Expr& x) { return apply(op::row_max, {x}); }
Expr row_dot(const Expr& x, const Expr& y) { return apply(op::row_dot, {x, y}); }
Expr squared_distance(const Expr& x, const Expr& y) { return apply(op::squared_distance, {x, y}); }
Expr mul_columns(const Expr& x, const Expr& factor) { return apply(op::mul_columns, {x, factor}); }
Expr matmul_each(const Expr& x, const Expr& y, Index rows) {
  return apply(op::matmul_each, {x, y}, {}, op::product_by_widths(rows, x.width(), y.width()));
}
Expr matmul_each_nt(const Expr& x, const Expr& y, Index rows) {
  return apply(op::matmul_each_nt, {x, y}, {}, op::product_by_widths(rows, x.width(), y.width()));
}
Expr conv2d(const Expr& images, const Operand& filters, const op::Window2d& window) {
  return apply(op::conv2d, {images, filters}, {}, op::sliding(window));
}
Expr max_pool2d(const Expr& images, const op::Window2d& window) {
  return apply(op::max_pool2d, {images}, {}, op::sliding(window));
}
Expr add_channel_bias(const Expr& images, const Operand& bias) { return apply(op::add_channel_bias, {images, bias}); }

namespace {

std::shared_ptr<ir::Tracing> tracing_of(const char* what, const Expr& x) {
  const Operand operand(x);
  return ir::Tracing::of(what, {&operand, 1}, {});
}

}  // namespace

Expr sum_children(const Expr& x) { return tracing_of("sum_children", x)->over_children(op::segment_sum, x); }
Expr mean_children(const Expr& x) {
  const auto tracing = tracing_of("mean_children", x);
  const Expr sum = tracing->over_children(op::segment_sum, x);
  return sum * apply(op::spread_columns, {tracing->share_of_child()}, {}, op::to_width(x.width()));
}
Expr max_children(const Expr& x) { return tracing_of("max_children", x)->over_children(op::segment_max, x); }
Expr to_children(const Expr& x) { return tracing_of("to_children", x)->to_children(x); }

}  // namespace windrow
