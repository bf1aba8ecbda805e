// What operators do with NaN and infinities: the rule of docs/ops.md.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/ops/planted.h"
#include "tests/seed.h"

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
  const Application column{{.in = {{Rows::count(1), 2}, {Rows::count(2), 1}}}, {{nan, 0}, {-inf, -inf}}};
  EXPECT_TRUE(std::isnan(both(op::log_matmul, column)[0]));
}

TEST(NotFinite, WhatIsEmptyIsZero) {
  for (const Operator* op : {&op::row_sum, &op::row_max, &op::log_sum_exp}) {
    EXPECT_EQ(both(*op, one_row({})), Values{0}) << op->name.text();
  }
  const Application empty{{.in = {{Rows::count(1), 1}}, .indices = {{Rows::count(1), 2}}}, {{nan}}, {{1, 1}}};
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
  const Application pair{{.in = {{Rows::count(1), 1}, {Rows::count(1), 1}}}, {{-inf}, {-inf}}};
  EXPECT_EQ(gradients(op::log_add_exp, pair), (std::vector<Values>{{0}, {0}}));
  // Column 1 cannot be reached, neither in the first row nor in the second.
  const Application product{{.in = {{Rows::count(2), 2}, {Rows::count(2), 2}}}, {{0, -inf, 0, 0}, {0, -inf, 0, -inf}}};
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

}  // namespace
}  // namespace windrow::testing
