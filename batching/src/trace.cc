// Tracing: expressions, and the vertex that the body of a vertex function sees.
#include <algorithm>

#include "ir.h"
#include "windrow/batching/vertex_function.h"

namespace windrow {
namespace ir {

Expr Trace::expr(Node node) {
  function.nodes.push_back(std::move(node));
  return expr_of(static_cast<Value>(function.nodes.size()) - 1);
}

Expr Trace::expr_of(Value value) { return Expr(weak_from_this(), value, function.nodes[at(value)].type); }

IndexExpr Trace::index_expr(std::size_t pull) {
  return IndexExpr(weak_from_this(), pull, function.index_pulls[pull].width);
}

Value Trace::value_of(const Operand& operand) {
  if (operand.value_ != no_value) {
    if (operand.trace_.lock().get() != this) throw MisuseError(function.name + ": an expression of another trace");
    return operand.value_;
  }
  if (function.parameters != 0 && function.parameters != operand.set_) {
    throw MisuseError(function.name + ": uses parameters of two sets; expected one");
  }
  function.parameters = operand.set_;
  Node node{.code = Code::parameter, .type = operand.type_, .number = operand.parameter_};
  const auto known = std::find(function.nodes.begin(), function.nodes.end(), node);
  if (known != function.nodes.end()) return static_cast<Value>(known - function.nodes.begin());
  function.nodes.push_back(std::move(node));
  return static_cast<Value>(function.nodes.size()) - 1;
}

std::shared_ptr<Trace> Trace::of(const std::string& what, std::span<const Operand> in,
                                 std::span<const IndexExpr> indices) {
  std::shared_ptr<Trace> found;
  const auto meet = [&](const std::weak_ptr<Trace>& trace) {
    const std::shared_ptr<Trace> here = trace.lock();
    if (!here) throw MisuseError(what + ": an expression of a vertex function that was already traced");
    if (found && found != here) throw MisuseError(what + ": expressions of two vertex functions; expected one");
    found = here;
  };
  for (const Operand& operand : in) {
    if (operand.value_ != no_value) meet(operand.trace_);
  }
  for (const IndexExpr& index : indices) meet(index.trace_);
  if (!found) throw MisuseError(what + ": only parameters; expected a value of a vertex among them");
  return found;
}

void Trace::check_locality(const Operator& op, const Signature& signature, const Type& result) const {
  const auto refuse = [&](const std::string& why) {
    throw MisuseError(function.name + ": " + std::string(op.name.text()) + ": " + why);
  };
  const bool of_vertices =
      !signature.indices.empty() ||
      std::any_of(signature.in.begin(), signature.in.end(), [](const Type& type) { return !type.rows.counted(); });
  if (op.updates) refuse("changes its result in place; expected an operator that makes one");
  if (!of_vertices && !result.rows.counted()) {
    refuse("makes " + to_string(result) + " of parameters alone; expected a counted number of rows");
  }
  if (!of_vertices) return;
  if (!by_rows(op)) {
    refuse("mixes the rows of a batch; expected an operator that is elementwise or rowwise");
  }
  if (result.rows.counted() || result.rows == Rows::edges()) {
    refuse("makes " + to_string(result) + " of vertices; expected a row for each");
  }
  for (std::size_t k = 0; k < signature.in.size(); ++k) {
    const bool whole = op.locality == Locality::rowwise && k < 32 && (op.whole >> k & 1u) != 0;
    if (whole != signature.in[k].rows.counted()) {
      refuse("operand " + std::to_string(k) + " is " + to_string(signature.in[k]) + "; expected " +
             (whole ? "a parameter" : "a value of the vertex"));
    }
  }
}

Expr Trace::apply(const Operator& op, std::span<const Operand> in, std::span<const IndexExpr> indices,
                  const Attributes& attributes) {
  Node node{.code = Code::apply, .type = {Rows::vertices(), 0}, .op = &op, .attributes = attributes};
  Signature signature{.attributes = attributes};
  for (const Operand& operand : in) signature.in.push_back(operand.type());
  for (const IndexExpr& index : indices) {
    signature.indices.push_back({Rows::vertices(), index.width()});
    node.indices.push_back(index.pull_);
  }
  try {
    node.type = infer(op, signature);
  } catch (const MisuseError& error) {
    throw MisuseError(function.name + ": " + error.what());
  }
  check_locality(op, signature, node.type);
  for (const Operand& operand : in) node.in.push_back(value_of(operand));
  return expr(std::move(node));
}

}  // namespace ir

Operand::Operand(const Parameter& parameter)
    : set_(parameter.set_), parameter_(parameter.number_), type_(parameter.type_) {}

Expr apply(const Operator& op, std::span<const Operand> in, std::span<const IndexExpr> indices,
           const Attributes& attributes) {
  return ir::Trace::of(std::string(op.name.text()), in, indices)->apply(op, in, indices, attributes);
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
Expr embedding(const Operand& table, const IndexExpr& row) { return apply(op::embedding, {table}, {row}); }
Expr dropout(const Expr& x, const IndexExpr& keys, double rate, std::uint64_t seed, std::uint32_t site) {
  return apply(op::dropout, {x}, {keys}, op::dropout_by(rate, seed, site));
}

Expr minimum(const Operand& x, const Operand& y) { return apply(op::minimum, {x, y}); }
Expr sqrt(const Expr& x) { return apply(op::sqrt, {x}); }
Expr abs(const Expr& x) { return apply(op::abs, {x}); }
Expr softplus(const Expr& x) { return apply(op::softplus, {x}); }
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
static Attributes product_of(const Expr& x, const Expr& y, Index rows) {
  const Index inner = rows > 0 ? x.width() / rows : 0;
  return op::product_of(rows, inner, inner > 0 ? y.width() / inner : 0);
}
Expr matmul_each(const Expr& x, const Expr& y, Index rows) {
  return apply(op::matmul_each, {x, y}, {}, product_of(x, y, rows));
}
Expr matmul_each_nt(const Expr& x, const Expr& y, Index rows) {
  return apply(op::matmul_each_nt, {x, y}, {}, product_of(x, y, rows));
}
Expr conv2d(const Expr& images, const Operand& filters, const op::Window2d& window) {
  return apply(op::conv2d, {images, filters}, {}, op::sliding(window));
}
Expr max_pool2d(const Expr& images, const op::Window2d& window) {
  return apply(op::max_pool2d, {images}, {}, op::sliding(window));
}
Expr add_channel_bias(const Expr& images, const Operand& bias) { return apply(op::add_channel_bias, {images, bias}); }

}  // namespace windrow
