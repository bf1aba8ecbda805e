#include <stdexcept>

#include "tests/ops/case_maker.h"

namespace windrow::testing {
namespace {

void product_of_rows(Maker& m) {
  const Index rows = m.number(0, 6), inner = m.number(0, 9), columns = m.number(0, 6);
  m.operand(counted(m.rows, rows * inner));
  m.operand(counted(m.rows, inner * columns));
  m.made.signature.attributes = op::product_of(rows, inner, columns);
}

/// Also windows as large as the image and larger, where padding lets them.
op::Window2d random_window(Maker& m) {
  op::Window2d w{.channels = m.number(1, 3),
                 .height = m.number(1, 7),
                 .width = m.number(1, 7),
                 .window_height = m.number(1, 4),
                 .window_width = m.number(1, 4),
                 .stride = m.number(1, 3)};
  w.padding = m.number(0, std::min(w.window_height, w.window_width) - 1);
  w.window_height = std::min(w.window_height, w.height + 2 * w.padding);
  w.window_width = std::min(w.window_width, w.width + 2 * w.padding);
  m.made.signature.attributes = op::sliding(w);
  return w;
}

void make_gather(Maker& m) {
  const Index table = m.number(1, 9);
  m.operand(counted(table, m.width));
  m.index(counted(m.rows, 1), [&m, table] { return m.number(0, table - 1); });
}

/// Of each row, which number its first operand must have.
void make_gather_where(Maker& m) {
  const Index table = m.number(1, 9);
  m.operand(counted(table, m.width));
  for (double& value : m.made.in.back()) value = static_cast<double>(m.number(-2, 2));
  m.operand(counted(table, m.width));
  bool row = false;
  m.index(counted(m.rows, 2), [&m, &row, table] { return (row = !row) ? m.number(0, table - 1) : m.number(-1, 2); });
}

void make_scatter(Maker& m) {
  const Index target = m.number(1, 9);
  m.operand(counted(m.rows, m.width));
  m.index(counted(m.rows, 1), [&m, target] { return m.number(0, target - 1); });
  m.made.signature.attributes = op::to_rows(Rows::count(target));
}

void make_segments(Maker& m) {
  const Index edges = m.number(0, 2 * m.rows);
  m.operand(counted(edges, m.width));
  m.segments(m.rows, edges);
}

void make_spread(Maker& m) {
  const Index edges = m.number(0, 2 * m.rows);
  m.operand(counted(m.rows, m.width));
  m.segments(m.rows, edges);
  m.made.signature.attributes = op::to_rows(Rows::count(edges));
}

void make_labels(Maker& m) {
  m.index(counted(m.rows, 1), [&m] { return m.number(-1, m.width - 1); });
}

void to_own_width(Maker& m) { m.made.signature.attributes = op::to_width(m.width); }
void one_row(Maker& m) { m.operand(counted(1, m.width)); }
void nine_rows(Maker& m) { m.operand(counted(9, m.width)); }

template <Index columns>
void make_pairs(Maker& m) {
  m.segments(m.rows, 20);
  m.index(counted(20, columns), [&m] { return m.number(0, 8); });
}

const Makes& makes() {
  static const Makes table = {
      {"div", parts(elementwise(1), positive)},
      {"scale", parts(elementwise(1), with(op::scaled_by(-0.75)))},
      {"log", positive},
      {"sqrt", positive},
      {"binary_cross_entropy", parts(elementwise(1), [](Maker& m) { m.targets(counted(m.rows, m.width)); })},
      {"sqrt_gradient", parts(positive, elementwise(1))},
      {"div_gradient", parts(elementwise(1), positive, elementwise(1))},
      {"matmul",
       [](Maker& m) {
         const Index inner = m.number(0, 40);
         m.operand(counted(m.rows, inner));
         m.operand(counted(inner, m.width));
       }},
      {"matmul_nt",
       [](Maker& m) {
         m.operand(counted(m.rows, m.width));
         m.operand(counted(m.number(0, 40), m.width));
       }},
      {"matmul_tn",
       [](Maker& m) {
         m.operand(counted(m.rows, m.number(0, 40)));
         m.operand(counted(m.rows, m.width));
       }},
      {"add_bias", parts(elementwise(1), one_row)},
      {"mul_columns", with_scalars(1)},
      {"matmul_each", product_of_rows},
      {"matmul_each_nt", product_of_rows},
      {"matmul_each_tn", product_of_rows},
      {"spread_rows", parts(one_row, [](Maker& m) { m.made.signature.attributes = op::to_rows(Rows::count(m.rows)); })},
      {"spread_columns", parts(with_scalars(0), to_own_width)},
      {"gather_rows", make_gather},
      {"embedding", make_gather},
      {"gather_where", make_gather_where},
      {"scatter_rows", make_scatter},
      {"concat",
       [](Maker& m) {
         for (Index parts = m.number(1, 4); parts > 0; --parts) m.operand(counted(m.rows, m.some_width()));
       }},
      {"slice",
       [](Maker& m) {
         elementwise(1)(m);
         const Index begin = m.number(0, m.width);
         m.made.signature.attributes = op::columns(begin, m.number(begin, m.width));
       }},
      {"place",
       [](Maker& m) {
         elementwise(1)(m);
         const Index begin = m.number(0, 20);
         m.made.signature.attributes = op::at_column(begin, begin + m.width + m.number(0, 20));
       }},
      {"pick", parts(elementwise(1), make_labels)},
      {"pick_gradient", parts(with_scalars(0), make_labels, to_own_width)},
      {"row_max_gradient", with_scalars(1)},
      {"conv2d",
       [](Maker& m) {
         const op::Window2d w = random_window(m);
         m.operand(counted(m.rows, w.image()));
         m.operand(counted(m.number(0, 4), w.window()));
       }},
      {"conv2d_data_gradient",
       [](Maker& m) {
         const op::Window2d w = random_window(m);
         const Index filters = m.number(0, 4);
         m.operand(counted(m.rows, filters * w.positions()));
         m.operand(counted(filters, w.window()));
       }},
      {"conv2d_filter_gradient",
       [](Maker& m) {
         const op::Window2d w = random_window(m);
         m.operand(counted(m.rows, w.image()));
         m.operand(counted(m.rows, m.number(0, 4) * w.positions()));
       }},
      {"max_pool2d", [](Maker& m) { m.operand(counted(m.rows, random_window(m).image())); }},
      {"max_pool2d_gradient",
       [](Maker& m) {
         const op::Window2d w = random_window(m);
         m.operand(counted(m.rows, w.image()));
         m.operand(counted(m.rows, w.channels * w.positions()));
       }},
      {"add_channel_bias",
       [](Maker& m) {
         const Index channels = m.number(1, 5);
         m.operand(counted(m.rows, channels * m.width));
         m.operand(counted(1, channels));
       }},
      {"add_channel_bias_gradient",
       [](Maker& m) {
         const Index channels = m.number(1, 5);
         m.operand(counted(m.rows, channels * m.width));
         m.made.signature.attributes = op::to_width(channels);
       }},
      {"segment_sum", make_segments},
      {"segment_mean", make_segments},
      {"segment_max", make_segments},
      {"segment_argmax", make_segments},
      {"gather_sum", parts(nine_rows, make_pairs<1>)},
      {"gather_weighted_sum", parts(
                                  nine_rows, [](Maker& m) { m.operand(counted(11, 1)); }, make_pairs<2>)},
      {"gather_dot", parts(
                         nine_rows, [](Maker& m) { m.operand(counted(11, m.width)); }, make_pairs<2>)},
      {"segment_spread", make_spread},
      {"segment_spread_mean", make_spread},
      {"segment_max_gradient", parts(make_segments, elementwise(1))},
      {"squared_distance_gradient", with_scalars(2)},
      {"softmax_cross_entropy", parts(elementwise(1), make_labels)},
      {"softmax_cross_entropy_gradient", parts(with_scalars(1), make_labels)},
      {"dropout",
       [](Maker& m) {
         elementwise(1)(m);
         const bool own_seed = m.number(0, 1) == 1;
         m.index(counted(m.rows, own_seed ? 5 : 3), [&m] { return m.number(-1'000'000, 1'000'000); });
         m.made.signature.attributes = op::dropout_by(0.3, own_seed ? 0 : 5'000'000'000, 7);
       }},
  };
  return table;
}

}  // namespace

Values random_values(const Type& type, std::mt19937& random) {
  Values values(elements(type));
  std::uniform_real_distribution<float> uniform(-2, 2);
  for (double& value : values) value = uniform(random);
  return values;
}

Application random_case(const Operator& op, Index rows, std::mt19937& random, Numbers numbers) {
  const std::string name(op.name.text());
  Make make;
  for (const Makes* table : {&makes(), &makes_of_models()}) {
    if (const auto found = table->find(name); found != table->end()) make = found->second;
  }
  if (!make && op.index_inputs == 0 && op.attributes.empty()) make = elementwise(static_cast<int>(op.inputs));
  if (!make) throw std::logic_error("no case for operator " + name);
  Maker maker(rows, numbers, random);
  make(maker);
  take_result(op, maker.made);
  return maker.made;
}

void take_result(const Operator& op, Application& c) {
  const bool product = &op == &op::log_matmul_gradient || &op == &op::log_matmul_weight_gradient;
  if (!product && &op != &op::log_sum_exp_gradient) return;
  const std::size_t operands = product ? 2 : 1;
  Application forward{.signature = {.in = {c.signature.in.begin(), c.signature.in.begin() + operands}},
                      .in = {c.in.begin(), c.in.begin() + operands}};
  c.in[operands] = evaluate(reference_kernels(), product ? op::log_matmul : op::log_sum_exp, forward);
}

}  // namespace windrow::testing
