#include "windrow/ops/operators.h"

namespace windrow::op {

std::span<const Operator* const> all() {
  static constexpr const Operator* list[] = {
      &add, &sub, &mul, &div, &maximum, &neg, &scale, &tanh, &sigmoid, &relu, &exp, &log, &square, &tanh_gradient, &sigmoid_gradient, &relu_gradient, &square_gradient, &div_gradient, &maximum_gradient, &maximum_gradient_strict, &matmul, &matmul_nt, &matmul_tn, &transpose, &add_bias, &column_sum, &row_sum, &spread_rows, &spread_columns, &gather_rows, &embedding, &scatter_rows, &concat, &slice, &place, &segment_sum, &segment_mean, &segment_max, &segment_spread, &segment_spread_mean, &segment_max_gradient, &softmax, &softmax_gradient, &softmax_cross_entropy, &softmax_cross_entropy_gradient, &dropout, &sgd, &sgd_rows};
  return list;
}

}  // namespace windrow::op
