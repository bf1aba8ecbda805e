// What operators do with NaN and infinities, which is the rule of docs/ops.md; and what products in other semirings and
// choices do with them, with forbidden terms and with ties.
#include "tests/ops/planted.h"

namespace windrow::testing {
namespace {

constexpr double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();

TEST(NotFinite, OperandsGiveOnTheHostWhatTheReferenceSays) {
  for (const Operator* op : op::all()) {
    if (op->updates) continue;
    bool same = true;  // one report for each operator is enough
    for (unsigned seed = first_seed(); same && seed < first_seed() + 4; ++seed) {
      std::mt19937 random(seed);
      const Application c = random_case(*op, 2, random);
      const Values before(elements(infer(*op, c.signature)));
      each_planted(*op, c, 1, [&](const Application& planted, const std::string& what) {
        if (!same) return;
        const std::string wrong = difference(run_host(*op, planted, before, Write::overwrite, 1),
                                             evaluate(reference_kernels(), *op, planted));
        same = wrong.empty();
        EXPECT_TRUE(same) << op->name.text() << ", width " << c.signature.in[0].width << ", " << what << ", seed "
                          << seed << ": " << wrong;
      });
    }
  }
}

Application one_row(Values values, const Attributes& attributes = {}) {
  return {{.in = {{Rows::count(1), static_cast<Index>(values.size())}}, .attributes = attributes}, {std::move(values)}};
}

/// The host's result for a row, which is the reference's.
Values both(const Operator& op, const Application& c) {
  const Values host = run_host(op, c, Values(elements(infer(op, c.signature))), Write::overwrite, 1);
  EXPECT_EQ(difference(host, evaluate(reference_kernels(), op, c)), "") << op.name.text();
  return host;
}

TEST(NotFinite, LogSumExpOfMinusInfinitiesIsOneAndNanWins) {
  for (const std::size_t width : {1, 2, 7, 8, 16, 17, 64, 70}) {
    EXPECT_EQ(both(op::log_sum_exp, one_row(Values(width, -inf))), Values{-inf});
    for (std::size_t at = 0; at < width; ++at) {
      Values row(width, -inf);
      row[at] = inf;
      EXPECT_EQ(both(op::log_sum_exp, one_row(row)), Values{inf});
      row[at] = nan;
      EXPECT_TRUE(std::isnan(both(op::log_sum_exp, one_row(row))[0])) << width << ", " << at;
    }
  }
  const Application column{{.in = {counted(1, 2), counted(2, 1)}}, {{nan, 0}, {-inf, -inf}}};
  EXPECT_TRUE(std::isnan(both(op::log_matmul, column)[0]));
}

TEST(NotFinite, WhatIsEmptyIsZero) {
  for (const Operator* op : {&op::row_sum, &op::row_max, &op::log_sum_exp}) {
    EXPECT_EQ(both(*op, one_row({})), Values{0}) << op->name.text();
  }
  const Application empty{{.in = {counted(1, 1)}, .indices = {counted(1, 2)}}, {{nan}}, {{1, 1}}};
  for (const Operator* op : {&op::segment_sum, &op::segment_mean, &op::segment_max}) {
    EXPECT_EQ(both(*op, empty), Values{0}) << op->name.text();
  }
}

/// The gradients of all operands, for a gradient of ones.
std::vector<Values> gradients(const Operator& op, Application c) {
  const Values result = both(op, c);
  std::vector<Values> all;
  for (const auto& term : op.gradients(c.signature)) {
    Application step{.signature = {.attributes = term->attributes}};
    for (const Ref& ref : term->in) {
      const bool operand = ref.of == Ref::Of::operand;
      step.signature.in.push_back(operand ? c.signature.in[ref.number] : infer(op, c.signature));
      step.in.push_back(operand ? c.in[ref.number] : ref.of == Ref::Of::result ? result : Values(result.size(), 1));
    }
    all.push_back(both(*term->op, step));
  }
  return all;
}

/// Such as a state of a forward algorithm that no transition reaches.
TEST(NotFinite, ASumOfNothingPassesNoGradient) {
  for (const std::size_t width : {1, 3, 8, 17}) {
    EXPECT_EQ(gradients(op::log_sum_exp, one_row(Values(width, -inf)))[0], Values(width, 0));
  }
  const Application pair{{.in = {counted(1, 1), counted(1, 1)}}, {{-inf}, {-inf}}};
  EXPECT_EQ(gradients(op::log_add_exp, pair), (std::vector<Values>{{0}, {0}}));
  // Column 1 cannot be reached, neither in the first row nor in the second.
  const Application product{{.in = {counted(2, 2), counted(2, 2)}}, {{0, -inf, 0, 0}, {0, -inf, 0, -inf}}};
  const std::vector<Values> of_product = gradients(op::log_matmul, product);
  EXPECT_EQ(difference(of_product[0], {1, 0, 0.5, 0.5}), "");
  EXPECT_EQ(difference(of_product[1], {1.5, 0, 0.5, 0}), "");
}

TEST(NotFinite, SlopesFarFromZeroAreOneAndZero) {
  struct Slopes {
    const Operator* op;
    double above, below;
    Attributes attributes = {};
  };
  for (const Slopes& s : {Slopes{&op::gelu, 1, 0},
                          {&op::silu, 1, 0},
                          {&op::elu, 1, 0, op::with_alpha(1)},
                          {&op::softplus, 1, 0},
                          {&op::log_sigmoid, 0, 1},
                          {&op::tanh, 0, 0},
                          {&op::sigmoid, 0, 0},
                          {&op::relu, 1, 0},
                          {&op::abs, 1, -1},
                          {&op::clamp, 0, 0, op::within(-1, 1)},
                          {&op::leaky_relu, 1, 0.5, op::with_slope(0.5)}}) {
    for (double x = 150; x < 3.4e38; x *= 1.5) {
      const Values found = gradients(*s.op, one_row({static_cast<float>(x), static_cast<float>(-x)}, s.attributes))[0];
      EXPECT_NEAR(found[0], s.above, 1e-6) << s.op->name.text() << ", " << x;
      EXPECT_NEAR(found[1], s.below, 1e-6) << s.op->name.text() << ", " << -x;
    }
  }
}

/// The host's result for one row and, for products, weights below it.
Values host_row(const Operator& op, const std::vector<std::pair<Type, Values>>& operands,
                const Attributes& attributes = {}) {
  Application c{.signature = {.attributes = attributes}};
  for (const auto& [type, values] : operands) {
    c.signature.in.push_back(type);
    c.in.push_back(values);
  }
  return run_host(op, c, Values(elements(infer(op, c.signature))), Write::overwrite, 1);
}

/// Also where all terms of an element are forbidden, or much smaller than another term of the row.
TEST(LogProducts, AreFiniteForForbiddenAndForSmallTerms) {
  const auto x = std::pair(counted(1, 2), Values{0, -500}),
             weights = std::pair(counted(2, 3), Values{1, -1e30f, -1e30f,  //
                                                       1, 2, -1e30f});
  const Values result = host_row(op::log_matmul, {x, weights});
  EXPECT_EQ(result, (Values{1, -498, -1e30f}));
  const auto out = std::pair(counted(1, 3), result), ones = std::pair(counted(1, 3), Values{1, 1, 1});
  const Values of_x = host_row(op::log_matmul_gradient, {x, weights, out, ones});
  EXPECT_NEAR(of_x[0], 1 + 0.5, 1e-6);  // both terms of the last column are the largest, and share alike
  EXPECT_NEAR(of_x[1], 1 + 0.5, 1e-6);
  const Values of_weights = host_row(op::log_matmul_weight_gradient, {x, weights, out, ones});
  EXPECT_EQ(of_weights[0], 1);
  EXPECT_NEAR(of_weights[3], 0, 1e-30);
  EXPECT_NEAR(of_weights[1], 0, 1e-30);
  EXPECT_EQ(of_weights[4], 1);
  for (double value : of_weights) EXPECT_TRUE(std::isfinite(value));
  EXPECT_EQ(host_row(op::log_matmul, {{counted(1, 1), {-inf}}, {counted(1, 1), {3}}}), Values{-inf});
}

TEST(LogSums, OfTwoAreStable) {
  const auto sum = [](double x, double y) {
    return host_row(op::log_add_exp, {{counted(1, 1), {x}}, {counted(1, 1), {y}}})[0];
  };
  EXPECT_EQ(sum(-1e30f, 2), 2);
  EXPECT_EQ(sum(-1e30f, -1e30f), -1e30f);
  EXPECT_EQ(sum(-inf, -inf), -inf);
  EXPECT_EQ(sum(inf, 1), inf);
  EXPECT_NEAR(sum(1000, 1000), 1000 + std::log(2.0), 1e-4);
  EXPECT_TRUE(std::isnan(sum(nan, 1)) && std::isnan(sum(1, nan)));
}

TEST(Choices, TakeTheFirstOfEqualsAndNotANumberBeforeAll) {
  const auto chosen = [](const Values& row, Index k, op::Order order = op::Order::descending, Index columns = 1) {
    return host_row(op::arg_top_k, {{counted(1, static_cast<Index>(row.size())), row}}, op::largest(k, columns, order));
  };
  EXPECT_EQ(chosen({1, 3, 2, 3}, 1), Values{1});
  EXPECT_EQ(chosen({1, 3, 2, 3}, 3), (Values{1, 3, 2}));
  EXPECT_EQ(chosen({1, 3, 2, 3}, 3, op::Order::by_place), (Values{1, 2, 3}));
  EXPECT_EQ(chosen({1, inf, nan, 3, nan}, 1), Values{2});
  EXPECT_EQ(chosen({1, inf, nan, 3, nan}, 3), (Values{2, 4, 1}));
  EXPECT_EQ(chosen({1, 8, 3, 7, 2, 9}, 2, op::Order::descending, 2), (Values{1, 2, 2, 0}));
  EXPECT_EQ(chosen({-inf, -inf}, 1), Values{0});
  const auto weights = std::pair(counted(3, 1), Values{0, 0, 0});
  EXPECT_EQ(host_row(op::argmax_matmul, {{counted(1, 3), {1, 2, 2}}, weights}), Values{1});
  EXPECT_EQ(host_row(op::argmax_matmul, {{counted(1, 3), {1, nan, 2}}, weights}), Values{1});
  EXPECT_TRUE(std::isnan(host_row(op::max_matmul, {{counted(1, 3), {1, nan, 2}}, weights})[0]));
  const auto gradient = std::pair(counted(1, 1), Values{5});
  for (const Operator* op : {&op::max_matmul_gradient, &op::max_matmul_weight_gradient}) {
    EXPECT_EQ(host_row(*op, {{counted(1, 3), {1, 2, 2}}, weights, gradient}), (Values{0, 5, 0})) << op->name.text();
    EXPECT_EQ(host_row(*op, {{counted(1, 3), {nan, nan, 2}}, weights, gradient}), (Values{5, 0, 0})) << op->name.text();
  }
}

TEST(Choices, RefuseNumbersOutOfRange) {
  EXPECT_EQ(error_of<MisuseError>([] { op::largest(0); }),
            "top_k: the 0 largest of 1 columns; expected 1 to 2147483647");
  EXPECT_THROW(op::largest(Index{1} << 40, Index{1} << 40), MisuseError);
  EXPECT_EQ(error_of<MisuseError>([] { op::drawn_by(1, 65536); }), "sample: site 65536; expected 0 to 65535");
  const Application c{{.in = {counted(3, 2)}, .indices = {counted(1, 2)}}, {Values(6, 1)}, {{0, 3}}};
  EXPECT_EQ(error_of<MisuseError>([&] { run_host(op::embedding_bag, c, Values(2), Write::overwrite, 1); }),
            "index 3 at row 0; expected -1 to 2");
}

}  // namespace
}  // namespace windrow::testing
