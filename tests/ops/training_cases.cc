// The cases of operators for training.
#include "tests/ops/case_maker.h"

namespace windrow::testing {
namespace {

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

const Makes& makes_of_training() {
  static const Makes table = {
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
