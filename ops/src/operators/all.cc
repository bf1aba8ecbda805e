#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "operators/attributes.h"
#include "windrow/ops/operators.h"

namespace windrow::op {
namespace {

using Stored = const Attributes&;
constexpr std::pair<std::string_view, Attributes (*)(Stored)> makers[] = {
    {"", [](Stored) { return Attributes(); }},
    {"scaled_by", [](Stored a) { return scaled_by(a.values[0]); }},
    {"scaled_and_shifted", [](Stored a) { return scaled_and_shifted(a.values[0], a.values[1]); }},
    {"with_alpha", [](Stored a) { return with_alpha(a.values[0]); }},
    {"with_slope", [](Stored a) { return with_slope(a.values[0]); }},
    {"within", [](Stored a) { return within(a.values[0], a.values[1]); }},
    {"to_power", [](Stored a) { return to_power(a.values[0]); }},
    {"to_rows", [](Stored a) { return to_rows(a.rows); }},
    {"to_width", [](Stored a) { return to_width(a.sizes[0]); }},
    {"columns", [](Stored a) { return columns(a.sizes[0], a.sizes[1]); }},
    {"at_column", [](Stored a) { return at_column(a.sizes[0], a.sizes[1]); }},
    {"product_of", [](Stored a) { return product_of(a.sizes[0], a.sizes[1], a.sizes[2]); }},
    {"sliding", [](Stored a) { return sliding(window_of(a)); }},
    {"smoothed_by", [](Stored a) { return smoothed_by(a.values[0]); }},
    {"with_margin", [](Stored a) { return with_margin(a.values[0]); }},
    {"with_epsilon", [](Stored a) { return with_epsilon(a.values[0]); }},
    {"largest",
     [](Stored a) { return largest(a.sizes[0], a.sizes[1], a.sizes[2] == 0 ? Order::descending : Order::by_place); }},
    {"drawn_by",
     [](Stored a) { return drawn_by(static_cast<std::uint64_t>(a.sizes[0]), static_cast<std::uint32_t>(a.sizes[1])); }},
    {"dropout_by",
     [](Stored a) {
       return dropout_by(a.values[0], static_cast<std::uint64_t>(a.sizes[0]), static_cast<std::uint32_t>(a.sizes[1]));
     }},
};

}  // namespace

Attributes remade(const Operator& op, const Attributes& stored) {
  const auto maker = std::ranges::find(makers, op.attributes, [](const auto& one) { return one.first; });
  if (maker != std::end(makers)) {
    Attributes made = maker->second(stored), same = stored;
    same.made_by = made.made_by;
    if (made == same) return made;
  }
  throw MisuseError(std::string(op.name.text()) + ": attributes that were not made by " + std::string(op.attributes) +
                    "; expected those of an operator of operators.h");
}

std::span<const Operator* const> all() {
  // clang-format off
  static constexpr const Operator* list[] = {
      &add, &sub, &mul, &div, &maximum, &minimum, &log_add_exp, &neg, &scale, &scale_shift, &reciprocal, &tanh,
      &sigmoid, &relu, &exp, &log, &square, &sqrt, &abs, &softplus, &log_sigmoid, &gelu, &silu, &elu, &leaky_relu,
      &clamp, &pow, &stop_gradient, &reverse_gradient, &tanh_gradient, &sigmoid_gradient, &relu_gradient,
      &square_gradient, &sqrt_gradient, &abs_gradient, &softplus_gradient, &log_sigmoid_gradient, &gelu_gradient,
      &silu_gradient, &elu_gradient, &leaky_relu_gradient, &clamp_gradient, &pow_gradient, &div_gradient,
      &log_add_exp_gradient, &maximum_gradient, &maximum_gradient_strict, &matmul, &matmul_nt, &matmul_tn, &log_matmul,
      &log_matmul_gradient, &log_matmul_weight_gradient, &max_matmul, &max_matmul_gradient, &max_matmul_weight_gradient,
      &argmax_matmul, &transpose, &add_bias, &column_sum, &row_sum, &spread_rows, &spread_columns, &mul_row,
      &column_dot, &row_dot, &mul_columns, &matmul_each, &matmul_each_nt, &matmul_each_tn, &gather_rows, &embedding,
      &embedding_bag, &scatter_bags, &gather_where, &scatter_rows, &concat, &slice, &place, &pick, &pick_gradient,
      &row_max, &row_max_gradient, &top_k, &top_k_gradient, &arg_top_k, &sample, &layer_norm, &layer_norm_gradient,
      &rms_norm, &rms_norm_gradient, &conv2d, &conv2d_data_gradient, &conv2d_filter_gradient, &max_pool2d,
      &max_pool2d_gradient, &add_channel_bias, &add_channel_bias_gradient, &segment_sum, &segment_mean, &segment_max,
      &segment_argmax, &gather_sum, &gather_weighted_sum, &gather_dot, &segment_spread, &segment_spread_mean,
      &segment_max_gradient, &softmax, &softmax_gradient, &log_softmax, &log_softmax_gradient, &squared_distance,
      &squared_distance_gradient, &softmax_cross_entropy, &softmax_cross_entropy_gradient, &smoothed_cross_entropy,
      &smoothed_cross_entropy_gradient, &hinge, &hinge_gradient, &log_sum_exp, &log_sum_exp_gradient,
      &binary_cross_entropy, &binary_cross_entropy_gradient, &binary_cross_entropy_target_gradient, &dropout, &sgd,
      &sgd_rows, &sum_parts, &sgd_step, &momentum_step, &adagrad_step, &rmsprop_step, &adam_step, &sgd_step_rows,
      &momentum_step_rows, &adagrad_step_rows, &rmsprop_step_rows, &adam_step_rows, &count_step_rows, &squared_norm,
      &limit_norm};
  // clang-format on
  return list;
}

}  // namespace windrow::op
