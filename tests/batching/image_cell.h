// A cell with convolution, pooling, attention over its children, and the operators of losses.
#pragma once

#include "tests/batching/oracle.h"
#include "windrow/batching/vertex_function.h"

namespace windrow::testing {

// The oracle's versions of the functions that only this cell uses.
inline Row operator-(const Row& x) { return apply(op::neg, {x}); }
inline Row sqrt(const Row& x) { return apply(op::sqrt, {x}); }
inline Row abs(const Row& x) { return apply(op::abs, {x}); }
inline Row softplus(const Row& x) { return apply(op::softplus, {x}); }
inline Row log_sigmoid(const Row& x) { return apply(op::log_sigmoid, {x}); }
inline Row binary_cross_entropy(const RowOperand& logits, const RowOperand& targets) {
  return elementwise(op::binary_cross_entropy, logits, targets);
}
inline Row log_softmax(const Row& x) { return apply(op::log_softmax, {x}); }
inline Row mean(const Row& x) { return 1 / static_cast<double>(x.type.width) * row_sum(x); }
inline Row squared_distance(const RowOperand& x, const RowOperand& y) { return apply(op::squared_distance, {x, y}); }
inline Row mul_columns(const Row& x, const Row& factor) { return apply(op::mul_columns, {x, factor}); }
inline Row matmul_each(const Row& x, const Row& y, Index rows) {
  const Index inner = x.type.width / rows;
  return apply(op::matmul_each, {x, y}, {}, op::product_of(rows, inner, y.type.width / inner));
}
inline Row matmul_each_nt(const Row& x, const Row& y, Index rows) {
  const Index inner = x.type.width / rows;
  return apply(op::matmul_each_nt, {x, y}, {}, op::product_of(rows, inner, y.type.width / inner));
}
inline Row conv2d(const Row& images, const RowOperand& filters, const op::Window2d& window) {
  return apply(op::conv2d, {images, filters}, {}, op::sliding(window));
}
inline Row max_pool2d(const Row& images, const op::Window2d& window) {
  return apply(op::max_pool2d, {images}, {}, op::sliding(window));
}
inline Row add_channel_bias(const Row& images, const RowOperand& bias) {
  return apply(op::add_channel_bias, {images, bias});
}

struct ImageCell {
  static constexpr std::size_t arity = 2;
  static constexpr Index in = 2, h = 12, classes = 5;
  static constexpr op::Window2d around{
      .channels = 2, .height = 4, .width = 4, .window_height = 3, .window_width = 3, .padding = 1};
  static constexpr op::Window2d quarters{
      .channels = 3, .height = 4, .width = 4, .window_height = 2, .window_width = 2, .stride = 2};
  Parameter image, filters, bias, head;

  explicit ImageCell(Parameters& p)
      : image(p.add("image", in + h, around.image(), Initial::uniform(-1, 1))),
        filters(p.add("filters", quarters.channels, around.window(), Initial::uniform(-1, 1))),
        bias(p.add("bias", 1, quarters.channels, Initial::uniform(-1, 1))),
        head(p.add("head", h, classes, Initial::uniform(-1, 1))) {}

  void operator()(auto& v) const {
    const auto state = v.state("state", h);
    const auto x = v.pull("x", in);
    const auto first = v.gather(0, state), second = v.gather(1, state);
    const auto seen = conv2d(tanh(matmul(concat(x, first), image)), filters, around);
    const auto pooled = max_pool2d(add_channel_bias(seen, bias), quarters);
    const auto children = concat(first, second);
    const auto weights = softmax(matmul_each_nt(pooled, children, 1));
    const auto value = tanh(pooled + matmul_each(weights, children, 1));
    v.scatter(state, value);
    v.push("value", value);
    const auto logits = matmul(value, head);
    v.loss(-pick(log_softmax(logits), v.pull_index("label", Presence::sometimes)));
    v.loss(squared_distance(value, second) + mean(mul_columns(softplus(value), row_dot(x, x))));
    v.loss(mean(binary_cross_entropy(logits, softmax(logits)) - log_sigmoid(logits)));
    v.loss(row_max(minimum(logits, 0.5 * logits)) + row_sum(sqrt(exp(value)) * abs(value)));
  }
};

}  // namespace windrow::testing
