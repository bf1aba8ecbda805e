// What the host kernels do at the ends of their ranges, with what is not a number, and with bad indices.
#include <numbers>

#include "tests/ops/cases.h"

namespace windrow::testing {
namespace {

double host_value(const Operator& op, const Values& operands, const Attributes& attributes) {
  Application c{.signature = {.attributes = attributes}};
  for (double operand : operands) {
    c.signature.in.push_back(counted(1, 1));
    c.in.push_back({operand});
  }
  return run_host(op, c, {0}, Write::overwrite, 1)[0];
}
double host_value(const Operator& op, const Values& operands) { return host_value(op, operands, some_attributes(op)); }

/// First operands of `op` from low to high; the other operands are `others` everywhere.
struct Sweep {
  const Operator& op;
  double low, high;
  Values others = {};
};

/// Compares the host's values with value(x) by check(x, host, exact).
template <class Check, class Exact>
void sweep(const Sweep& over, Check check, Exact exact) {
  const auto& [op, low, high, others] = over;
  constexpr Index count = 200'000;
  Application c;
  c.signature.attributes = some_attributes(op);
  c.signature.in.assign(1 + others.size(), counted(1, count));
  c.in.resize(1);
  for (const double other : others) c.in.emplace_back(count, other);
  for (Index i = 0; i < count; ++i) {
    c.in[0].push_back(static_cast<float>(low + (high - low) * static_cast<double>(i) / static_cast<double>(count)));
  }
  const Values values = run_host(op, c, Values(count), Write::overwrite, 1);
  for (std::size_t i = 0; i < values.size(); ++i) check(c.in[0][i], values[i], exact(c.in[0][i]));
}

void relative(double x, double host, double exact) { ASSERT_NEAR(host / exact, 1, 1e-6) << x; }

double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

TEST(HostKernels, KeepTheirPrecisionOverTheWholeRange) {
  const auto within = [](double low, double high) {
    return [=](double x, double host, double exact) {
      ASSERT_NEAR(host, exact, 4e-7) << x;
      ASSERT_GE(host, low) << x;
      ASSERT_LE(host, high) << x;
    };
  };
  sweep({op::tanh, -40, 40}, within(-1, 1), [](double x) { return std::tanh(x); });
  sweep({op::sigmoid, -40, 40}, within(0, 1), [](double x) { return 1 / (1 + std::exp(-x)); });
  sweep({op::tanh, 1e-6, 1}, relative, [](double x) { return std::tanh(x); });
  sweep({op::exp, -87.3, 88.722}, relative, [](double x) { return std::exp(x); });
  sweep({op::exp, 88.7, 88.7228}, relative, [](double x) { return std::exp(x); });
  EXPECT_EQ(host_value(op::exp, {88.73}), std::numeric_limits<double>::infinity());
  sweep({op::softplus, -87, 100}, relative, softplus);
  sweep({op::log_sigmoid, -1e4, 87}, relative, [&](double x) { return -softplus(-x); });
  sweep({op::log_sigmoid, -30, 30}, relative, [&](double x) { return -softplus(-x); });
  sweep({op::sqrt, 1e-6, 1e9}, relative, [](double x) { return std::sqrt(x); });
  const auto absolute = [](double x, double host, double exact) { ASSERT_NEAR(host, exact, 4e-6) << x; };
  sweep({op::log, 1e-6, 10}, absolute, [](double x) { return std::log(x); });
  sweep({op::log, 1, 1e9}, absolute, [](double x) { return std::log(x); });
}

TEST(HostKernels, KeepThePrecisionOfActivations) {
  const auto gelu = [](double x) {
    return x / (1 + std::exp(-std::sqrt(8 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  };
  sweep(
      {op::gelu, -30, 30},
      [](double x, double host, double exact) { ASSERT_NEAR(host, exact, 1e-6 * std::max(1.0, std::abs(x))) << x; },
      gelu);
  const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
  sweep({op::silu, -80, -1e-6}, relative, silu);
  sweep({op::silu, 1e-6, 100}, relative, silu);
  const double alpha = some_attributes(op::elu).values[0];
  sweep({op::elu, -100, -1e-6}, relative, [=](double x) { return alpha * std::expm1(x); });
  const double power = some_attributes(op::pow).values[0];
  sweep(
      {op::pow, 1e-3, 1e3},
      [](double x, double host, double exact) {
        ASSERT_NEAR(host / exact, 1, 1e-6 * (1 + std::abs(std::log(exact)))) << x;
      },
      [=](double x) { return std::pow(x, power); });
}

TEST(HostKernels, GiveGradientsOfLogarithmsOfSumsThatAddUpToOne) {
  for (const Index terms : {2, 3, 5, 16, 17, 64, 65, 1000}) {
    for (const double offset : {0.0, -1e3, 1e5, 1e6, 1e7, -1e30}) {
      SCOPED_TRACE(std::to_string(terms) + " terms, offset " + std::to_string(offset));
      Values x;
      for (Index i = 0; i < terms; ++i) x.push_back(static_cast<float>(offset + (std::abs(offset) < 1e6 ? i % 3 : 0)));
      double sum = 0;
      for (const double v : x) sum += std::exp(v - x[0]);
      const Type row = counted(1, terms), column = counted(terms, 1), one = counted(1, 1);
      const auto check = [&](const Operator& op, const std::vector<Type>& types, const std::vector<Values>& operands) {
        const Values shares = run_host(op, {{.in = types}, operands}, Values(x.size(), 1), Write::add, 1);
        for (std::size_t i = 0; i < x.size(); ++i) {
          ASSERT_NEAR(shares[i], 1 + 3 * std::exp(x[i] - x[0]) / sum, 2e-6) << op.name.text() << ", term " << i;
        }
      };
      const Values result = run_host(op::log_sum_exp, {{.in = {row}}, {x}}, {0}, Write::overwrite, 1);
      check(op::log_sum_exp_gradient, {row, one, one}, {x, result, {3}});
      check(op::log_matmul_gradient, {row, column, one, one}, {x, Values(x.size(), 0), result, {3}});
      check(op::log_matmul_weight_gradient, {row, column, one, one}, {Values(x.size(), 0), x, result, {3}});
    }
  }
}

TEST(HostKernels, TakePowersOfNegativeNumbersAndOfZero) {
  const auto value = [](const Operator& op, double power, const Values& operands) {
    return host_value(op, operands, op::to_power(power));
  };
  EXPECT_NEAR(value(op::pow, 3, {-2}), -8, 1e-5);
  EXPECT_NEAR(value(op::pow, -2, {-2}), 0.25, 1e-6);
  EXPECT_TRUE(std::isnan(value(op::pow, 0.5, {-2})));
  EXPECT_EQ(value(op::pow, 0.5, {0}), 0);
  EXPECT_EQ(value(op::pow, -1, {0}), std::numeric_limits<double>::infinity());
  EXPECT_NEAR(value(op::pow_gradient, 3, {-2, 1}), 12, 1e-5);
  EXPECT_EQ(value(op::pow_gradient, 2, {0, 5}), 0);
  EXPECT_EQ(value(op::pow_gradient, 1, {0, 5}), 5);
  EXPECT_EQ(value(op::pow_gradient, 0.5, {0, 5}), std::numeric_limits<double>::infinity());
}

TEST(HostKernels, KeepThePrecisionOfBinaryCrossEntropyForAnyLogit) {
  const auto absolute = [](double x, double host, double exact) { ASSERT_NEAR(host, exact, 4e-7) << x; };
  for (const double limit : {30.0, 1e4}) {
    for (const double target : {0.0, 0.25, 0.5, 0.9999998807907104, 1.0}) {
      SCOPED_TRACE("logits up to " + std::to_string(limit) + ", target " + std::to_string(target));
      // Beyond, the value of a hard target is no normal float.
      const double low = target == 0 ? std::max(-limit, -87.0) : -limit,
                   high = target == 1 ? std::min(limit, 87.0) : limit;
      const auto value = [&](double x) { return target * softplus(-x) + (1 - target) * softplus(x); };
      sweep({op::binary_cross_entropy, low, high, {target}}, relative, value);
      const auto gradient = [&](double x) { return (1 - target) / (1 + std::exp(-x)) - target / (1 + std::exp(x)); };
      sweep({op::binary_cross_entropy_gradient, -limit, limit, {target, 1}}, absolute, gradient);
      if (target == 0 || target == 1)
        sweep({op::binary_cross_entropy_gradient, low, high, {target, 1}}, relative, gradient);
    }
    const auto gradient = [](double x) { return 1 / (1 + std::exp(x)); };
    sweep({op::log_sigmoid_gradient, -limit, limit, {1}}, absolute, gradient);
  }
}

/// Where they are small, they are differences of numbers that are nearly equal if they are computed carelessly.
TEST(HostKernels, KeepTheRelativePrecisionOfSmallGradients) {
  const double alpha = some_attributes(op::elu_gradient).values[0];
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  sweep({op::softplus_gradient, -87, 87, {1}}, relative, sigmoid);
  sweep({op::log_sigmoid_gradient, -87, 87, {1}}, relative, [&](double x) { return sigmoid(-x); });
  sweep({op::elu_gradient, -85, -1e-6, {1}}, relative, [=](double x) { return alpha * std::exp(x); });
}

TEST(HostKernels, CrossEntropySurvivesLargeLogits) {
  const Application c{{.in = {counted(2, 2)}, .indices = {counted(2, 1)}}, {{1000, 0, 1000, 0}}, {{0, 1}}};
  EXPECT_EQ(run_host(op::softmax_cross_entropy, c, {7, 7}, Write::overwrite, 1), (Values{0, 1000}));
  const Application logits{{.in = {counted(1, 2)}}, {{1000, 0}}};
  EXPECT_EQ(run_host(op::log_softmax, logits, {7, 7}, Write::overwrite, 1), (Values{0, -1000}));
  EXPECT_EQ(run_host(op::log_sum_exp, logits, {7}, Write::overwrite, 1), (Values{1000}));
}

TEST(HostKernels, AHingeOfOneClassIsMet) {
  const Application c{
      {.in = {counted(1, 1)}, .indices = {counted(1, 1)}, .attributes = op::with_margin(1)}, {{5}}, {{0}}};
  EXPECT_EQ(run_host(op::hinge, c, {7}, Write::overwrite, 1), (Values{0}));
  Application gradient = c;
  gradient.signature.in.push_back(counted(1, 1));
  gradient.in.push_back({1});
  EXPECT_EQ(run_host(op::hinge_gradient, gradient, {7}, Write::overwrite, 1), (Values{0}));
}

TEST(HostKernels, ARowWithoutLabelHasNoLossAndNoGradientWhateverItHolds) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Application c{{.in = {counted(1, 2)}, .indices = {counted(1, 1)}}, {{nan, 1}}, {{-1}}};
  EXPECT_EQ(run_host(op::softmax_cross_entropy, c, {7}, Write::overwrite, 1), (Values{0}));
  EXPECT_EQ(run_host(op::pick, c, {7}, Write::overwrite, 1), (Values{0}));
  c.signature.attributes = op::smoothed_by(0.1);
  EXPECT_EQ(run_host(op::smoothed_cross_entropy, c, {7}, Write::overwrite, 1), (Values{0}));
  c.signature.attributes = op::with_margin(1);
  EXPECT_EQ(run_host(op::hinge, c, {7}, Write::overwrite, 1), (Values{0}));
  c.signature.in.push_back(counted(1, 1));
  c.in.push_back({1});
  EXPECT_EQ(run_host(op::hinge_gradient, c, {7, 7}, Write::overwrite, 1), (Values{0, 0}));
  c.signature.attributes = op::smoothed_by(0.1);
  EXPECT_EQ(run_host(op::smoothed_cross_entropy_gradient, c, {7, 7}, Write::overwrite, 1), (Values{0, 0}));
  c.signature.attributes = {};
  EXPECT_EQ(run_host(op::softmax_cross_entropy_gradient, c, {7, 7}, Write::overwrite, 1), (Values{0, 0}));
  EXPECT_EQ(run_host(op::softmax_cross_entropy_gradient, c, {7, 7}, Write::add, 1), (Values{7, 7}));
}

TEST(Gradients, AtTiesAndKinksAreAsDocumented) {
  EXPECT_EQ(host_value(op::relu_gradient, {0, 5}), 0);
  EXPECT_EQ(host_value(op::abs_gradient, {0, 5}), 0);
  EXPECT_EQ(host_value(op::leaky_relu_gradient, {0, 5}), 5 * some_attributes(op::leaky_relu).values[0]);
  const auto [low, high] = some_attributes(op::clamp).values;
  for (double end : {low, high}) {
    EXPECT_EQ(host_value(op::clamp_gradient, {static_cast<float>(end), 5}), 5);
    EXPECT_EQ(host_value(op::clamp_gradient, {1.1 * end, 5}), 0);
  }
  EXPECT_EQ(host_value(op::maximum_gradient, {1, 1, 5}), 5);
  EXPECT_EQ(host_value(op::maximum_gradient_strict, {1, 1, 5}), 0);
  const Application ties{
      {.in = {counted(4, 1), counted(1, 1)}, .indices = {counted(1, 2)}}, {{1, 3, 3, 2}, {5}}, {{0, 4}}};
  EXPECT_EQ(run_host(op::segment_max_gradient, ties, Values(4), Write::overwrite, 1), (Values{0, 5, 0, 0}));
  const Application alone{{.in = {counted(4, 1)}, .indices = {counted(1, 2)}}, {{1, 3, 3, 2}}, {{0, 4}}};
  EXPECT_EQ(run_host(op::segment_argmax, alone, Values(1), Write::overwrite, 1), (Values{1}));
  const Application back{
      {.in = {counted(1, 1), counted(1, 1)}, .indices = {counted(4, 2)}}, {{1}, {5}}, {{0, 0, 0, 1, 0, 2, 0, 3}}};
  EXPECT_EQ(run_host(op::gather_where, back, Values(4), Write::overwrite, 1), (Values{0, 5, 0, 0}));
  Application row{{.in = {counted(1, 4), counted(1, 1)}}, {{1, 3, 3, 2}, {5}}};
  EXPECT_EQ(run_host(op::row_max_gradient, row, Values(4), Write::overwrite, 1), (Values{0, 5, 0, 0}));
  row.signature.attributes =
      op::sliding({.channels = 1, .height = 2, .width = 2, .window_height = 2, .window_width = 2});
  EXPECT_EQ(run_host(op::max_pool2d_gradient, row, Values(4), Write::overwrite, 1), (Values{0, 5, 0, 0}));
}

TEST(Images, AreConvolvedAsTheBooksSay) {
  const Attributes places =
      op::sliding({.channels = 1, .height = 3, .width = 3, .window_height = 2, .window_width = 2});
  const Application c{{.in = {counted(1, 9), counted(1, 4)}, .attributes = places},
                      {{1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 10, 100, 1000}}};
  EXPECT_EQ(run_host(op::conv2d, c, Values(4), Write::overwrite, 1), (Values{5421, 6532, 8754, 9865}));
  const Application image{{.in = {c.signature.in[0]}, .attributes = places}, {c.in[0]}};
  EXPECT_EQ(run_host(op::max_pool2d, image, Values(4), Write::overwrite, 1), (Values{5, 6, 8, 9}));
}

TEST(Images, ArePooledWithoutTheirPadding) {
  const op::Window2d window{
      .channels = 1, .height = 2, .width = 2, .window_height = 2, .window_width = 2, .stride = 2, .padding = 1};
  const double inf = std::numeric_limits<double>::infinity();
  Application c{{.in = {counted(1, 4)}, .attributes = op::sliding(window)}, {{-1, -inf, -3, -4}}};
  EXPECT_EQ(run_host(op::max_pool2d, c, Values(4), Write::overwrite, 1), (Values{-1, -inf, -3, -4}));
  c.in[0][2] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(run_host(op::max_pool2d, c, Values(4), Write::overwrite, 1)[2]));
}

/// The text of the error that host and reference kernels both throw.
std::string text_of_both(const Operator& op, const Application& c) {
  const Values before(elements(infer(op, c.signature)));
  const std::string host = error_of<MisuseError>([&] { run_host(op, c, before, Write::add, 1); });
  EXPECT_EQ(error_of<MisuseError>([&] { evaluate(reference_kernels(), op, c, before); }), host);
  return host;
}

TEST(Indices, OutOfRangeAreNamed) {
  for (const Operator* op : {&op::gather_rows, &op::embedding, &op::scatter_rows}) {
    const bool gathers = op->whole != 0;
    for (const std::int32_t bad : {2, -1, std::numeric_limits<std::int32_t>::max()}) {
      Application c{{.in = {{Rows::count(gathers ? 2 : 3), 1}}, .indices = {counted(3, 1)}}, {}, {{0, 1, bad}}};
      c.in.push_back(Values(gathers ? 2 : 3));
      if (op == &op::scatter_rows) c.signature.attributes = op::to_rows(Rows::count(2));
      EXPECT_EQ(text_of_both(*op, c), "index " + std::to_string(bad) + " at row 2; expected 0 to 1") << op->name.text();
    }
  }
  for (const std::int32_t bad : {-2, 3}) {
    const Application c{{.in = {counted(1, 3)}, .indices = {counted(1, 1)}}, {{1, 2, 3}}, {{bad}}};
    const std::string expected = "index " + std::to_string(bad) + " at row 0; expected -1 to 2";
    EXPECT_EQ(text_of_both(op::softmax_cross_entropy, c), expected);
    EXPECT_EQ(text_of_both(op::pick, c), expected);
  }
  const Application none{{.in = {counted(0, 1)}, .indices = {counted(1, 1)}}, {{}}, {{0}}};
  EXPECT_EQ(text_of_both(op::gather_rows, none), "index 0 at row 0; expected none, since there is nothing to index");
}

TEST(Targets, OutsideOfZeroToOneAreNamed) {
  for (const double bad : {-1.0, 1.5}) {
    for (const Index width : {3, 64}) {
      const auto count = static_cast<std::size_t>(2 * width);
      Application c{{.in = {counted(2, width), counted(2, width)}}, {Values(count), Values(count, 1.0)}};
      c.in[1][count - 1] = bad;
      EXPECT_EQ(text_of_both(op::binary_cross_entropy, c),
                (bad < 0 ? "target -1 at row 1, column " : "target 1.5 at row 1, column ") + std::to_string(width - 1) +
                    "; expected 0 to 1");
    }
  }
}

TEST(Indices, BadSegmentsAreNamed) {
  using Segment = std::vector<std::int32_t>;
  for (const Segment& bad : {Segment{0, 4}, Segment{-1, 2}, Segment{2, 1}}) {
    const std::string expected =
        "segment [" + std::to_string(bad[0]) + ", " + std::to_string(bad[1]) + ") at row 0; expected it within [0, 3)";
    Application c{{.in = {counted(3, 1)}, .indices = {counted(1, 2)}}, {{1, 2, 3}}, {bad}};
    for (const Operator* op : {&op::segment_sum, &op::segment_mean, &op::segment_max, &op::segment_argmax}) {
      EXPECT_EQ(text_of_both(*op, c), expected) << op->name.text();
    }
    c.signature.in = {counted(1, 1)};
    c.in = {{1}};
    c.signature.attributes = op::to_rows(Rows::count(3));
    EXPECT_EQ(text_of_both(op::segment_spread, c), expected);
    EXPECT_EQ(text_of_both(op::segment_spread_mean, c), expected);
  }
}

TEST(Indices, BadBoundsAndOrdersOfTablesAreNamed) {
  using Numbers = std::vector<std::int32_t>;
  const auto said = [](Numbers bounds, Numbers order) {
    Application c{{.in = {counted(3, 1)}, .indices = {counted(2, 3), counted(3, 1)}},
                  {{1, 2, 3}},
                  {std::move(bounds), std::move(order)}};
    c.signature.attributes = op::rows_at_rate(Rows::count(9), 0.1);
    return text_of_both(op::sgd_rows, c);
  };
  EXPECT_EQ(said({4, 0, 1, 9, 1, 3}, {0, 1, 2}), "index 9 at row 1; expected 5 to 8");
  EXPECT_EQ(said({4, 0, 1, 4, 1, 3}, {0, 1, 2}), "index 4 at row 1; expected 5 to 8") << "not ascending";
  EXPECT_EQ(said({-1, 0, 1, 4, 1, 3}, {0, 1, 2}), "index -1 at row 0; expected 0 to 8");
  EXPECT_EQ(said({0, 0, 1, 4, 1, 4}, {0, 1, 2}), "segment [1, 4) at row 1; expected it within [0, 3)");
  EXPECT_EQ(said({0, 1, 1, 4, 1, 3}, {0, 1, 2}), "segment [1, 1) at row 0; expected it within [0, 3)") << "empty";
  EXPECT_EQ(said({0, 0, 1, 4, 1, 3}, {0, 1, 3}), "index 3 at row 2; expected 0 to 2");
}

TEST(UpdatingRows, KeepsIncrementsThatAreSmallBesideTheValueAndBesideTheirSum) {
  constexpr Index many = 100'000;  // neither 1 - 1e-8 nor 1 + 1e-8 is another float than 1
  for (const double step : {1e-8, 1.0 / (1 << 23)}) {
    std::vector<std::int32_t> order(many);
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
    Application c{{.in = {counted(many, 1)}, .indices = {counted(1, 3), counted(many, 1)}},
                  {Values(many, static_cast<double>(static_cast<float>(step)))},
                  {{0, 0, many}, order}};
    c.in[0][0] = 1;
    c.signature.attributes = op::rows_at_rate(Rows::count(1), 1);
    const double expected = evaluate(reference_kernels(), op::sgd_rows, c, Values{1})[0];
    constexpr double of_one_block = 64.0 / (1 << 24);  // of the rows that are added up in float
    EXPECT_NEAR(run_host(op::sgd_rows, c, {1}, Write::add, 1)[0], expected, of_one_block) << step;
  }
}

}  // namespace
}  // namespace windrow::testing
