// Cells with convolution, pooling and the operators of losses, and of the operators that layers are made of, written
// once for vertex functions, lazy expressions and the oracle.
#pragma once

#include "tests/batching/oracle.h"
#include "windrow/batching/vertex_function.h"

namespace windrow::testing {

// The oracle's versions of the functions that only these cells use.
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

inline Row scale_shift(const Row& x, double factor, double shift) {
  return apply(op::scale_shift, {x}, {}, op::scaled_and_shifted(factor, shift));
}
inline Row operator*(const Row& x, double factor) { return factor * x; }
inline Row operator/(const Row& x, double divisor) { return 1 / divisor * x; }
inline Row operator/(double dividend, const Row& x) { return apply(op::reciprocal, {x}, {}, op::scaled_by(dividend)); }
inline Row operator+(const Row& x, double shift) { return scale_shift(x, 1, shift); }
inline Row operator+(double shift, const Row& x) { return scale_shift(x, 1, shift); }
inline Row operator-(const Row& x, double shift) { return scale_shift(x, 1, -shift); }
inline Row operator-(double shift, const Row& x) { return scale_shift(x, -1, shift); }
inline Row gelu(const Row& x) { return apply(op::gelu, {x}); }
inline Row silu(const Row& x) { return apply(op::silu, {x}); }
inline Row elu(const Row& x, double alpha) { return apply(op::elu, {x}, {}, op::with_alpha(alpha)); }
inline Row leaky_relu(const Row& x, double slope) { return apply(op::leaky_relu, {x}, {}, op::with_slope(slope)); }
inline Row clamp(const Row& x, double low, double high) { return apply(op::clamp, {x}, {}, op::within(low, high)); }
inline Row pow(const Row& x, double power) { return apply(op::pow, {x}, {}, op::to_power(power)); }
inline Row log_sum_exp(const Row& x) { return apply(op::log_sum_exp, {x}); }
inline Row smoothed_cross_entropy(const Row& logits, const OracleIndex& label, double epsilon) {
  return apply(op::smoothed_cross_entropy, {logits}, {label}, op::smoothed_by(epsilon));
}
inline Row hinge(const Row& scores, const OracleIndex& label, double margin) {
  return apply(op::hinge, {scores}, {label}, op::with_margin(margin));
}
inline Row layer_norm(const Row& x) { return apply(op::layer_norm, {x}, {}, op::with_epsilon(1e-5)); }
inline Row rms_norm(const Row& x, double epsilon) { return apply(op::rms_norm, {x}, {}, op::with_epsilon(epsilon)); }

inline Row log_add_exp(const RowOperand& x, const RowOperand& y) { return elementwise(op::log_add_exp, x, y); }
inline Row column_sum(const Row& x) { return apply(op::column_sum, {x}); }
inline Row log_matmul(const Row& x, const RowOperand& w) { return apply(op::log_matmul, {x, w}); }
inline Row max_matmul(const Row& x, const RowOperand& w) { return apply(op::max_matmul, {x, w}); }
inline Row argmax_matmul(const Row& x, const RowOperand& w) { return apply(op::argmax_matmul, {x, w}); }
inline Row top_k(const Row& x, Index k, Index columns, op::Order order) {
  return apply(op::top_k, {x}, {}, op::largest(k, columns, order));
}
inline Row top_k(const Row& x, Index k) { return top_k(x, k, 1, op::Order::descending); }
inline Row arg_top_k(const Row& x, Index k) { return apply(op::arg_top_k, {x}, {}, op::largest(k)); }
inline Row argmax(const Row& x) { return arg_top_k(x, 1); }

struct LayersCell {
  static constexpr std::size_t arity = 0;
  static constexpr Index in = 2, h = 6;
  static constexpr op::Window2d around{
      .channels = 1, .height = 2, .width = 3, .window_height = 1, .window_width = 3, .padding = 0};
  static constexpr op::Window2d halves{
      .channels = 2, .height = 2, .width = 1, .window_height = 2, .window_width = 1, .stride = 1};
  Parameter w, gain, bias, temperature, weights, table, filters, channels;

  explicit LayersCell(Parameters& p)
      : w(p.add("w", in, h, Initial::uniform(-1, 1))),
        gain(p.add("gain", 1, h, Initial::uniform(0.5, 2))),
        bias(p.add("bias", 1, h, Initial::uniform(-1, 1))),
        temperature(p.add("temperature", 1, 1, Initial::uniform(1, 2))),
        weights(p.add("weights", h, h, Initial::uniform(-1, 1))),
        table(p.add("table", 5, h, Initial::uniform(-1, 1))),
        filters(p.add("filters", 2, around.window(), Initial::uniform(-1, 1))),
        channels(p.add("channels", 1, 2, Initial::uniform(-1, 1))) {}

  /// Calls take(name, value) for each value. `rows` makes constants and functions of parameters: a vertex, for example.
  template <class MakesRows, class X, class Label, class Take>
  void compute(MakesRows& rows, const X& input, const Label& label, Take take) const {
    const X x = matmul(input, w);
    take("scaled and shifted", scale_shift(1 - x, 0.5, 2) * (x + 0.25) * (0.25 + x) - (x - 1) / 4);
    take("reciprocal", 2 / (square(x) * 0.5 + 1));
    take("activations", gelu(x) - silu(x) * elu(x, 0.5) + leaky_relu(x, 0.2) * clamp(x, -0.25, 0.5));
    take("powers", pow(x, 3) + pow(square(x) + 0.5, -0.5));
    take("losses", smoothed_cross_entropy(x, label, 0.1) + 0.5 * hinge(x, label, 1.5) - log_sum_exp(x));
    take("norms", layer_norm(x) * gain + bias - rms_norm(x, 0.1));
    take("rows", (gain * x - bias) * (bias - x) + (x / gain - gain / (square(x) + 1)));
    take("numbers", x * temperature + (temperature - x) / temperature + (temperature + square(x)));
    const auto column = row_sum(square(x)) + 1;
    take("columns", (x + column) * column + (column - x) / column - column / (square(x) + 1));
    take("columns and rows", column * gain + (bias - column) / gain + gain / column);
    take("maxima", maximum(x, gain) - minimum(bias, x) * maximum(minimum(x, bias), -0.5 * x));
    take("maxima of columns", maximum(x, temperature) + minimum(column, x) + maximum(gain, column));
    const auto g = rows.parameter(gain), t = rows.parameter(temperature);
    take("functions of rows", (x - exp(g)) / (exp(g) + square(x)) + exp(g) * x - (tanh(g) - x) / (2 + column * g));
    take("functions of numbers", (x / exp(t) + (tanh(t) - x) * (exp(t) + x)) / t - (t / (square(x) + 1) - t));
    take("columns and functions of rows", (column - exp(g)) / (column + 1 / g) - (t - column) * (column / exp(t)));
    take("slices of rows", (slice(g, 1, 4) - slice(x, 0, 3)) * slice(x, 3, 6) / exp(slice(g, 0, 3)));
    take("maxima of functions", maximum(x, tanh(g)) - minimum(tanh(t), x) + maximum(exp(g), column));
    take("log sums of rows", log_add_exp(x, gain) - log_add_exp(exp(g), x) + log_add_exp(temperature, x));
    take("cross entropies of rows", binary_cross_entropy(x, sigmoid(g)) + binary_cross_entropy(bias, sigmoid(x)));
    take("log sums of columns", log_add_exp(column, gain) + log_add_exp(g, column) + log_add_exp(x, column));
    take("cross entropies of columns",
         binary_cross_entropy(column, sigmoid(g)) + binary_cross_entropy(gain, 1 / (column + 1)));
    take("rows and numbers alone", x * (g * t) + (t - gain) / (exp(g) + temperature) - minimum(bias, t) * (t / g) -
                                       maximum(temperature, g) + log_add_exp(gain, t));
    const auto matrix = rows.parameter(weights);
    take("matrices and rows alone",
         matmul(x, g * matrix + bias - (t - matrix) / g) - matmul(x, matrix - maximum(g, matrix)));
    const auto sums = row_sum(square(matrix)) + 1;
    take("columns and rows alone",
         matmul(x, matrix / sums + log_add_exp(sums, g) + minimum(t, matrix) * (sums - gain)));
    take("products and distances of rows",
         row_dot(x, gain) + row_dot(exp(g), x) * squared_distance(bias, x) - squared_distance(x, tanh(g)));
    take("functions of whole parameters", log_matmul(matmul(x, exp(matrix)), log_softmax(matrix)) +
                                              0.25 * (rows.zeros(1) + column_sum(row_sum(square(matrix)))));
    take("images", max_pool2d(relu(add_channel_bias(conv2d(x, filters, around), channels)), halves));
    take("log sums", log_add_exp(x, 0.5 * x) + log_add_exp(x, x));
    take("log products", log_matmul(x, weights) + 0.5 * max_matmul(x, weights));
    take("largest", top_k(x, 3) + top_k(x, 1, 3, op::Order::by_place));
    take("places", stop_gradient(argmax(x) + row_sum(arg_top_k(x, 2)) + row_sum(argmax_matmul(x, weights))));
    take("transposed", matmul_nt(x, table));
    take("constant", (rows.zeros(h) + x) * rows.constant(h, 0.75));
  }

  void operator()(auto& v) const {
    compute(v, v.pull("x", in), v.pull_index("label"), [&](const char* name, const auto& value) {
      v.push(name, value);
      v.loss(row_sum(value));
    });
  }
};

}  // namespace windrow::testing
