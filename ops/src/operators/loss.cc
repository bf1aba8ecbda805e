// Softmax, losses and dropout: shapes and gradients.
#include <cmath>
#include <string>

#include "operators/rules.h"
#include "windrow/ops/internal/dropout.h"
#include "windrow/ops/internal/number.h"
#include "windrow/ops/operators.h"

namespace windrow::op {
namespace {

Type infer_log_sum_exp_gradient(const Operator& op, const Signature& s) {
  const Type of_row{s.in[0].rows, 1};
  require(s.in[1] == of_row && s.in[2] == of_row, op, s,
          "a result and a gradient of width 1 for each row of the first");
  return s.in[0];
}
Type infer_squared_distance_gradient(const Operator& op, const Signature& s) {
  const Type& type = s.in[0];
  require(s.in[1] == type && s.in[2] == Type{type.rows, 1}, op, s,
          "two of one shape, and a gradient of width 1 for each row");
  return type;
}
Type infer_dropout(const Operator& op, const Signature& s) {
  const bool has_seeds = s.indices.size() == 1 && s.indices[0].width == 5;
  require_index(has_seeds ? 5 : 3, op, s);
  require(s.in[0].width <= dropout_width_limit, op, s, "a width of at most 262144");
  return s.in[0];
}

/// A label, or -1 for none.
IndexRange labels(const Signature& s, std::size_t) { return {-1, s.in[0].width - 1}; }

}  // namespace

constinit const Operator softmax =
    rowwise({.name = "softmax", .infer = same_shape, .gradients = term<softmax_gradient, result, gradient>});
constinit const Operator softmax_gradient =
    rowwise({.name = "softmax_gradient", .inputs = 2, .infer = same_shape, .zero = 0b11});
constinit const Operator log_softmax =
    rowwise({.name = "log_softmax", .infer = same_shape, .gradients = term<log_softmax_gradient, result, gradient>});
constinit const Operator log_softmax_gradient =
    rowwise({.name = "log_softmax_gradient", .inputs = 2, .infer = same_shape, .zero = 0b10});
constinit const Operator squared_distance = rowwise(
    {.name = "squared_distance",
     .inputs = 2,
     .infer = column_of_two,
     .gradients = terms<by<squared_distance_gradient, x, y, gradient>, by<squared_distance_gradient, y, x, gradient>>});
constinit const Operator squared_distance_gradient = rowwise(
    {.name = "squared_distance_gradient", .inputs = 3, .infer = infer_squared_distance_gradient, .zero = 0b100});
constinit const Operator softmax_cross_entropy =
    rowwise({.name = "softmax_cross_entropy",
             .index_inputs = 1,
             .infer = one_column_by_index,
             .gradients = term<softmax_cross_entropy_gradient, x, gradient>,
             .index_range = labels});
constinit const Operator softmax_cross_entropy_gradient = rowwise({.name = "softmax_cross_entropy_gradient",
                                                                   .inputs = 2,
                                                                   .index_inputs = 1,
                                                                   .infer = like_operand<one_column_by_index>,
                                                                   .zero = 0b10});
constinit const Operator smoothed_cross_entropy =
    rowwise({.name = "smoothed_cross_entropy",
             .index_inputs = 1,
             .infer = one_column_by_index,
             .gradients = term<smoothed_cross_entropy_gradient, x, gradient>,
             .attributes = "smoothed_by",
             .index_range = labels});
constinit const Operator smoothed_cross_entropy_gradient = rowwise({.name = "smoothed_cross_entropy_gradient",
                                                                    .inputs = 2,
                                                                    .index_inputs = 1,
                                                                    .infer = like_operand<one_column_by_index>,
                                                                    .zero = 0b10,
                                                                    .attributes = "smoothed_by"});
constinit const Operator hinge = rowwise({.name = "hinge",
                                          .index_inputs = 1,
                                          .infer = one_column_by_index,
                                          .gradients = term<hinge_gradient, x, gradient>,
                                          .attributes = "with_margin",
                                          .index_range = labels});
constinit const Operator hinge_gradient = rowwise({.name = "hinge_gradient",
                                                   .inputs = 2,
                                                   .index_inputs = 1,
                                                   .infer = like_operand<one_column_by_index>,
                                                   .zero = 0b10,
                                                   .attributes = "with_margin"});
constinit const Operator log_sum_exp =
    rowwise({.name = "log_sum_exp", .infer = one_column, .gradients = term<log_sum_exp_gradient, x, result, gradient>});
constinit const Operator log_sum_exp_gradient =
    rowwise({.name = "log_sum_exp_gradient", .inputs = 3, .infer = infer_log_sum_exp_gradient, .zero = 0b100});
constinit const Operator dropout = rowwise({.name = "dropout",
                                            .index_inputs = 1,
                                            .infer = infer_dropout,
                                            .gradients = term<dropout, gradient>,
                                            .zero = 0b1,
                                            .attributes = "dropout_by"});

Attributes smoothed_by(double epsilon) {
  if (!(0 <= epsilon && epsilon < 1)) {
    throw MisuseError("smoothed_cross_entropy: epsilon " + shortest_text(epsilon) + "; expected 0 <= epsilon < 1");
  }
  return {.made_by = "smoothed_by", .values = {epsilon, 0}};
}
Attributes with_margin(double margin) {
  if (!(0 <= margin && is_float(margin))) {
    throw MisuseError("hinge: margin " + shortest_text(margin) + "; expected a finite float of 0 or more");
  }
  return {.made_by = "with_margin", .values = {margin, 0}};
}
Attributes dropout_by(double rate, std::uint64_t seed, std::uint32_t site) {
  if (site >> 16 != 0) throw MisuseError("dropout: site " + std::to_string(site) + "; expected 0 to 65535");
  if (!(0 <= rate && rate < 1)) throw MisuseError("dropout: rate " + shortest_text(rate) + "; expected 0 <= rate < 1");
  return {.made_by = "dropout_by", .sizes = {static_cast<Index>(seed), site}, .values = {rate, 0}};
}

}  // namespace windrow::op
