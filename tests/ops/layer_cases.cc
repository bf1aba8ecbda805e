#include "tests/ops/case_maker.h"

namespace windrow::testing {
namespace {

/// Powers, each with operands for which its gradient is finite, then `others` operands.
Make power(int others) {
  return [others](Maker& m) {
    static constexpr double powers[] = {1.5, -0.5, 3, 2, 1, -2};
    const double power = powers[m.number(0, std::size(powers) - 1)];
    if (power >= 1 && power == std::floor(power)) {
      m.operand(counted(m.rows, m.width));
    } else {
      m.positive_operand(counted(m.rows, m.width));
    }
    elementwise(others)(m);
    m.made.signature.attributes = op::to_power(power);
  };
}

/// The operands of a product in another semiring, and `others` of the product's shape. Some terms are forbidden.
Make log_product(int others = 0) {
  return [others](Maker& m) {
    const Index inner = m.number(1, 12);
    m.operand(counted(m.rows, inner));
    m.operand(counted(inner, m.width));
    for (double& weight : m.made.in.back()) weight = m.number(0, 9) == 0 ? -1e30f : weight;
    for (Index c = 0; c < m.width; ++c) m.made.in.back()[static_cast<std::size_t>(c)] = 0.5;
    for (int k = 0; k < others; ++k) m.operand(counted(m.rows, m.width));
  };
}

/// Rows that contain matrices, of whose columns some elements are chosen.
Make choice(bool gradient) {
  return [gradient](Maker& m) {
    const Index columns = m.number(1, 3), rows = m.number(1, 40), count = m.number(1, rows);
    m.operand(counted(m.rows, rows * columns));
    if (gradient) m.operand(counted(m.rows, count * columns));
    m.made.signature.attributes =
        op::largest(count, columns, m.number(0, 1) == 1 ? op::Order::by_place : op::Order::descending);
  };
}

/// A table, or rows to be added to one, and up to four rows of the table for each row.
Make bag(bool from_table) {
  return [from_table](Maker& m) {
    const Index rows = m.number(1, 9);
    m.operand(counted(from_table ? rows : m.rows, m.width));
    m.index(counted(m.rows, m.number(1, 4)), [&m, rows] { return m.number(-1, rows - 1); });
    if (!from_table) m.made.signature.attributes = op::to_rows(Rows::count(rows));
  };
}

/// Scores of two or more classes, `scalars` operands of width 1, and labels. Of one class only rounding errors remain.
Make labelled(int scalars, const Attributes& attributes) {
  return [scalars, attributes](Maker& m) {
    m.operand(counted(m.rows, m.width + 1));
    for (int k = 0; k < scalars; ++k) m.operand(counted(m.rows, 1));
    m.index(counted(m.rows, 1), [&m] { return m.number(-1, m.width); });
    m.made.signature.attributes = attributes;
  };
}

}  // namespace

const Makes& makes_of_layers() {
  static const Makes table = {
      {"scale_shift", parts(elementwise(1), with(op::scaled_and_shifted(-0.75, 0.5)))},
      {"reciprocal", parts(positive, with(op::scaled_by(-0.75)))},
      {"elu", parts(elementwise(1), with(op::with_alpha(0.75)))},
      {"leaky_relu", parts(elementwise(1), with(op::with_slope(0.25)))},
      {"clamp", parts(elementwise(1), with(op::within(-0.7, 1.3)))},
      {"pow", power(0)},
      {"reverse_gradient", parts(elementwise(1), with(op::scaled_by(0.5)))},
      {"smoothed_cross_entropy", labelled(0, op::smoothed_by(0.2))},
      {"smoothed_cross_entropy_gradient", labelled(1, op::smoothed_by(0.2))},
      {"hinge", labelled(0, op::with_margin(1))},
      {"hinge_gradient", labelled(1, op::with_margin(1))},
      {"layer_norm", parts(elementwise(1), with(op::with_epsilon(0.25)))},
      {"layer_norm_gradient", parts(elementwise(2), with(op::with_epsilon(0.25)))},
      {"rms_norm", parts(elementwise(1), with(op::with_epsilon(0.25)))},
      {"rms_norm_gradient", parts(elementwise(2), with(op::with_epsilon(0.25)))},
      {"mul_row", parts(elementwise(1), [](Maker& m) { m.operand(counted(1, m.width)); })},
      {"log_sum_exp_gradient",
       [](Maker& m) {
         with_scalars(1)(m);
         m.operand(counted(m.rows, 1));
       }},
      {"log_matmul", log_product()},
      {"log_matmul_gradient", log_product(2)},
      {"log_matmul_weight_gradient", log_product(2)},
      {"max_matmul", log_product()},
      {"max_matmul_gradient", log_product(1)},
      {"max_matmul_weight_gradient", log_product(1)},
      {"argmax_matmul", log_product()},
      {"top_k", choice(false)},
      {"top_k_gradient", choice(true)},
      {"arg_top_k", choice(false)},
      {"sample",
       [](Maker& m) {
         elementwise(1)(m);
         m.index(counted(m.rows, 3), [&m] { return m.number(-1'000'000, 1'000'000); });
         m.made.signature.attributes = op::drawn_by(5'000'000'000, 7);
       }},
      {"embedding_bag", bag(true)},
      {"scatter_bags", bag(false)},
      {"elu_gradient", parts(elementwise(2), with(op::with_alpha(2)))},
      {"leaky_relu_gradient", parts(elementwise(2), with(op::with_slope(0.25)))},
      {"clamp_gradient", parts(elementwise(2), with(op::within(-0.7, 1.3)))},
      {"pow_gradient", power(1)},
  };
  return table;
}

}  // namespace windrow::testing
