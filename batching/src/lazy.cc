// Lazy graphs, and the operators of lazy expressions.
#include "windrow/batching/lazy.h"

#include "lazy_epochs.h"
#include "lazy_record.h"

namespace windrow {

LazyGraph::LazyGraph(const Device& device, Parameters& parameters, LazyOptions options)
    : record_(new lazy::Record(device, parameters, options)) {}
LazyGraph::~LazyGraph() {
  record_->close();
  record_->release();
}

LazyExpr LazyGraph::input(std::span<const float> values) { return record_->add_input(values); }
LazyExpr LazyGraph::parameter(const Parameter& parameter) {
  const Index rows = parameter.type().rows.number();
  if (rows != 1) {
    throw MisuseError("a parameter of " + std::to_string(rows) + " rows as an expression; expected one of 1 row");
  }
  return embedding(parameter, index(0));
}
LazyIndex LazyGraph::index(std::int32_t value) { return record_->index({&value, 1}); }
LazyIndex LazyGraph::index(std::span<const std::int32_t> values) { return record_->index(values); }
void LazyGraph::flush(std::source_location from) { record_->epochs().flush(from); }
void LazyGraph::backward(std::span<const LazyExpr> losses, std::source_location from) {
  std::vector<lazy::NodeId> nodes;
  for (const LazyExpr& loss : losses) nodes.push_back(record_->checked(loss, "backward"));
  record_->epochs().backward(nodes, from);
}
void LazyGraph::clear() { record_->clear(); }
LazyStats LazyGraph::stats() const { return record_->epochs().stats(); }
std::string LazyGraph::describe() const { return record_->epochs().describe(); }

std::vector<float> LazyExpr::value(std::source_location from) const {
  lazy::Record& of = record("value");
  const lazy::NodeId node = of.checked(*this, "value");  // before it is asked what it computed
  return of.epochs().value(node, from);
}

bool LazyExpr::computed() const { return record("value").checked(*this, "value") < record_->first_pending(); }

float LazyExpr::scalar(std::source_location from) const {
  if (width() != 1) throw MisuseError("scalar of an expression of width " + std::to_string(width()) + "; expected 1");
  return value(from)[0];
}

LazyExpr apply(const Operator& op, std::span<const LazyOperand> in, std::span<const LazyIndex> indices,
               const Attributes& attributes) {
  return lazy::Record::apply(op, in, indices, attributes);
}
LazyExpr apply(const Operator& op, std::initializer_list<LazyOperand> in, std::initializer_list<LazyIndex> indices,
               const Attributes& attributes) {
  return apply(op, std::span(in.begin(), in.size()), std::span(indices.begin(), indices.size()), attributes);
}

LazyExpr operator+(const LazyExpr& x, const LazyOperand& y) {
  return apply(y.is_parameter() ? op::add_bias : op::add, {x, y});
}
LazyExpr operator-(const LazyExpr& x, const LazyExpr& y) { return apply(op::sub, {x, y}); }
LazyExpr operator*(const LazyExpr& x, const LazyExpr& y) { return apply(op::mul, {x, y}); }
LazyExpr operator/(const LazyExpr& x, const LazyExpr& y) { return apply(op::div, {x, y}); }
LazyExpr operator-(const LazyExpr& x) { return apply(op::neg, {x}); }
LazyExpr operator*(double factor, const LazyExpr& x) { return apply(op::scale, {x}, {}, op::scaled_by(factor)); }
LazyExpr maximum(const LazyExpr& x, const LazyExpr& y) { return apply(op::maximum, {x, y}); }
LazyExpr tanh(const LazyExpr& x) { return apply(op::tanh, {x}); }
LazyExpr sigmoid(const LazyExpr& x) { return apply(op::sigmoid, {x}); }
LazyExpr relu(const LazyExpr& x) { return apply(op::relu, {x}); }
LazyExpr exp(const LazyExpr& x) { return apply(op::exp, {x}); }
LazyExpr log(const LazyExpr& x) { return apply(op::log, {x}); }
LazyExpr square(const LazyExpr& x) { return apply(op::square, {x}); }
LazyExpr matmul(const LazyExpr& x, const Parameter& w) { return apply(op::matmul, {x, w}); }
LazyExpr affine(const LazyExpr& x, const Parameter& w, const Parameter& b) { return matmul(x, w) + b; }
LazyExpr slice(const LazyExpr& x, Index begin, Index end) { return apply(op::slice, {x}, {}, op::columns(begin, end)); }
LazyExpr row_sum(const LazyExpr& x) { return apply(op::row_sum, {x}); }
LazyExpr softmax(const LazyExpr& x) { return apply(op::softmax, {x}); }
LazyExpr softmax_cross_entropy(const LazyExpr& logits, const LazyIndex& label) {
  return apply(op::softmax_cross_entropy, {logits}, {label});
}
LazyExpr binary_cross_entropy(const LazyExpr& logits, const LazyExpr& targets) {
  return apply(op::binary_cross_entropy, {logits, targets});
}
LazyExpr embedding(const Parameter& table, const LazyIndex& row) { return apply(op::embedding, {table}, {row}); }
LazyExpr dropout(const LazyExpr& x, const LazyIndex& keys, double rate, std::uint64_t seed, std::uint32_t site) {
  return apply(op::dropout, {x}, {keys}, op::dropout_by(rate, seed, site));
}

LazyExpr minimum(const LazyExpr& x, const LazyExpr& y) { return apply(op::minimum, {x, y}); }
LazyExpr sqrt(const LazyExpr& x) { return apply(op::sqrt, {x}); }
LazyExpr abs(const LazyExpr& x) { return apply(op::abs, {x}); }
LazyExpr softplus(const LazyExpr& x) { return apply(op::softplus, {x}); }
LazyExpr log_sigmoid(const LazyExpr& x) { return apply(op::log_sigmoid, {x}); }
LazyExpr log_softmax(const LazyExpr& x) { return apply(op::log_softmax, {x}); }
LazyExpr pick(const LazyExpr& x, const LazyIndex& column) { return apply(op::pick, {x}, {column}); }
LazyExpr mean(const LazyExpr& x) {
  if (x.width() == 0) throw MisuseError("mean of an expression of width 0; expected a column or more");
  return 1 / static_cast<double>(x.width()) * row_sum(x);
}
LazyExpr row_max(const LazyExpr& x) { return apply(op::row_max, {x}); }
LazyExpr row_dot(const LazyExpr& x, const LazyExpr& y) { return apply(op::row_dot, {x, y}); }
LazyExpr squared_distance(const LazyExpr& x, const LazyExpr& y) { return apply(op::squared_distance, {x, y}); }
LazyExpr mul_columns(const LazyExpr& x, const LazyExpr& factor) { return apply(op::mul_columns, {x, factor}); }
LazyExpr matmul_each(const LazyExpr& x, const LazyExpr& y, Index rows) {
  return apply(op::matmul_each, {x, y}, {}, op::product_by_widths(rows, x.width(), y.width()));
}
LazyExpr matmul_each_nt(const LazyExpr& x, const LazyExpr& y, Index rows) {
  return apply(op::matmul_each_nt, {x, y}, {}, op::product_by_widths(rows, x.width(), y.width()));
}
LazyExpr conv2d(const LazyExpr& images, const Parameter& filters, const op::Window2d& window) {
  return apply(op::conv2d, {images, filters}, {}, op::sliding(window));
}
LazyExpr max_pool2d(const LazyExpr& images, const op::Window2d& window) {
  return apply(op::max_pool2d, {images}, {}, op::sliding(window));
}
LazyExpr add_channel_bias(const LazyExpr& images, const Parameter& bias) {
  return apply(op::add_channel_bias, {images, bias});
}

/// So that no vertex has more children than it may.
constexpr std::size_t most_operands = 16;

/// Many parts are joined in pieces.
LazyExpr concat(std::span<const LazyOperand> parts) {
  if (parts.size() <= most_operands) return apply(op::concat, parts);
  std::vector<LazyExpr> pieces;
  for (std::size_t begin = 0; begin < parts.size(); begin += most_operands) {
    pieces.push_back(apply(op::concat, parts.subspan(begin, std::min(most_operands, parts.size() - begin))));
  }
  const std::vector<LazyOperand> operands(pieces.begin(), pieces.end());
  return concat(operands);
}

/// Many terms are added up in pieces; by levels, so that they are as few as the number of terms has digits.
LazyExpr sum(std::span<const LazyExpr> terms) {
  if (terms.empty()) throw MisuseError("sum of no expressions; expected one or more");
  if (terms.size() == 1) return terms[0];
  if (terms.size() <= most_operands) {
    const std::vector<LazyOperand> operands(terms.begin(), terms.end());
    return apply(lazy::sum_of_many, std::span<const LazyOperand>(operands));
  }
  std::vector<LazyExpr> pieces;
  for (std::size_t begin = 0; begin < terms.size(); begin += most_operands) {
    pieces.push_back(sum(terms.subspan(begin, std::min(most_operands, terms.size() - begin))));
  }
  return sum(pieces);
}

LazyExpr mean(std::span<const LazyExpr> terms) { return (1 / static_cast<double>(terms.size())) * sum(terms); }

}  // namespace windrow
