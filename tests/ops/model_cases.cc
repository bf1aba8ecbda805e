// The cases of what models are made of beyond cases.cc: activations, losses, normalisation, broadcasting, training.
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

/// The parts of the gradient of a table of `target` rows.
void make_parts(Maker& m, Index target) {
  std::vector<std::int32_t> row_of;
  for (Index parts = m.number(1, 3); parts > 0; --parts) {
    const Index rows = parts > 1 ? m.number(0, 5) : m.rows;
    m.operand(counted(rows, m.width));
    for (Index r = 0; r < rows; ++r) row_of.push_back(static_cast<std::int32_t>(m.number(-1, target - 1)));
  }
  m.segments_of(row_of);
}

/// The numbers of a step, as an operand; several rows of them are alike.
void make_step_numbers(Maker& m, Index rows = 1) {
  m.operand(counted(rows, StepNumbers::count));
  const double infinite = std::numeric_limits<double>::infinity();
  const bool limited = m.number(0, 1) == 1, nesterov = m.number(0, 1) == 1, skipped = m.number(0, 7) == 7;
  const bool penalised = m.number(0, 1) == 1, again = m.number(0, 1) == 1;
  m.made.in.back() = {static_cast<double>(0.1f),
                      skipped ? 0 : 0.5,
                      limited ? 0.75 : infinite,
                      limited ? 1.5 : infinite,
                      penalised ? 0.25 : 0,
                      0.5,
                      0.875,
                      nesterov ? 1 : 0.75,
                      0.5,
                      0.25,
                      0.125,
                      again ? 0.75 : 1,
                      0x1p-26,
                      -0x1p-26};
  const Values row = m.made.in.back();
  for (Index r = 1; r < rows; ++r) m.made.in.back().insert(m.made.in.back().end(), row.begin(), row.end());
}

void make_step(Maker& m) {
  m.operand(counted(m.rows, m.width));
  make_step_numbers(m);
}

void make_step_rows(Maker& m) {
  make_step(m);
  m.index(counted(m.rows, 1), [] { return 0; });
  Index row = -1;
  for (Index r = 0; r < m.rows; ++r) {
    row += m.number(1, 3);
    m.made.indices.back()[static_cast<std::size_t>(r)] = static_cast<std::int32_t>(row);
  }
  m.made.signature.attributes = op::to_rows(Rows::count(row + 1 + m.number(0, 2)));
}

void add_steps_of_rows(Maker& m) {
  m.operand({m.made.signature.attributes.rows, 1});
  for (double& steps : m.made.in.back()) steps = static_cast<double>(m.number(1, 40));
}

}  // namespace

const Makes& makes_of_models() {
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
      {"log_sum_exp_gradient", parts(with_scalars(1), with_scalars(0))},
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
      // Of training.
      {"sgd", parts(elementwise(1), with(op::at_rate(0.1, 0.01)))},
      {"sgd_rows",
       [](Maker& m) {
         const Index target = m.number(1, 9);
         make_parts(m, target);
         m.made.signature.attributes = op::rows_at_rate(Rows::count(target), 0.1, m.number(0, 1) == 0 ? 0 : 0.25);
       }},
      {"sum_parts", [](Maker& m) { make_parts(m, m.number(1, 9)); }},
      {"sgd_step", make_step},
      {"momentum_step", make_step},
      {"adagrad_step", make_step},
      {"rmsprop_step", make_step},
      {"adam_step", make_step},
      {"sgd_step_rows", make_step_rows},
      {"momentum_step_rows", make_step_rows},
      {"adagrad_step_rows", make_step_rows},
      {"rmsprop_step_rows", make_step_rows},
      {"adam_step_rows", parts(make_step_rows, add_steps_of_rows)},
      {"count_step_rows",
       [](Maker& m) {
         make_step_rows(m);
         m.made.in.erase(m.made.in.begin());
         m.made.signature.in.erase(m.made.signature.in.begin());
       }},
      {"limit_norm",
       [](Maker& m) {
         make_step_numbers(m, m.number(1, 3));
         for (double& value : m.made.in.back()) value = std::min(value, 4.0);  // results are compared
         for (Index norms = m.number(0, 4); norms > 0; --norms) m.positive_operand(counted(1, m.number(1, 2)));
       }},
  };
  return table;
}

}  // namespace windrow::testing
