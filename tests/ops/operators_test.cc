// Every operator of the list: its host kernel against the reference, its gradient against differences.
#include "windrow/ops/operators.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/engine/support.h"
#include "tests/ops/cases.h"

namespace windrow {
namespace {

using testing::Case;
using testing::elements;
using testing::error_of;
using testing::expect_close;
using testing::Values;

constexpr Index row_counts[] = {0, 1, 2, 3, 5, 16, 33, 70};

class EveryOperator : public ::testing::TestWithParam<const Operator*> {
 protected:
  const Operator& op() const { return *GetParam(); }

  /// Calls test(case, random) for several shapes of each row count.
  template <class Test>
  void each_case(Test test) const {
    for (Index rows : row_counts) {
      for (unsigned repetition = 0; repetition < 4; ++repetition) {
        const unsigned seed = static_cast<unsigned>(rows) * 100 + repetition;
        SCOPED_TRACE("rows " + std::to_string(rows) + ", seed " + std::to_string(seed));
        std::mt19937 random(seed);
        const Case c = testing::random_case(op(), rows, random);
        test(c, random);
        if (HasFatalFailure()) return;
      }
    }
  }
};

template <class Condition>
auto operators_that(Condition holds) {
  std::vector<const Operator*> list;
  std::copy_if(op::all().begin(), op::all().end(), std::back_inserter(list), [&](auto* o) { return holds(*o); });
  return ::testing::ValuesIn(list);
}

std::string operator_name(const ::testing::TestParamInfo<const Operator*>& about) {
  return std::string(about.param->name.text());
}

class OverwritingOperator : public EveryOperator {};
class ElementwiseOperator : public EveryOperator {};
class DifferentiableOperator : public EveryOperator {};

INSTANTIATE_TEST_SUITE_P(All, EveryOperator, operators_that([](auto&) { return true; }), operator_name);
INSTANTIATE_TEST_SUITE_P(All, OverwritingOperator, operators_that([](auto& o) { return !o.updates; }), operator_name);
INSTANTIATE_TEST_SUITE_P(All, ElementwiseOperator, operators_that([](auto& o) { return o.elementwise && !o.updates; }),
                         operator_name);
INSTANTIATE_TEST_SUITE_P(All, DifferentiableOperator, operators_that([](auto& o) { return o.gradients != nullptr; }),
                         operator_name);

TEST_P(EveryOperator, GivesOnTheHostWhatTheReferenceGives) {
  each_case([&](const Case& c, std::mt19937& random) {
    const Values before = testing::random_values(c.result(op()), random);
    for (const Write write : {Write::overwrite, Write::add}) {
      if (op().updates && write == Write::overwrite) continue;
      for (const Index gap : {0, 3}) {
        SCOPED_TRACE("write " + std::to_string(static_cast<int>(write)) + ", gap " + std::to_string(gap));
        const Values host = testing::run(host_kernels(), op(), c, before, {write, gap});
        const Values reference = testing::run(reference_kernels(), op(), c, before, {write, gap});
        expect_close(host, reference, 1e-5);
      }
    }
  });
}

TEST_P(OverwritingOperator, DoesNotLookAtWhatWasThere) {
  each_case([&](const Case& c, std::mt19937&) {
    const Values nan(elements(c.result(op())), std::numeric_limits<double>::quiet_NaN());
    for (double value : testing::run(host_kernels(), op(), c, nan)) ASSERT_TRUE(std::isfinite(value));
    for (double value : testing::run(reference_kernels(), op(), c, nan)) ASSERT_TRUE(std::isfinite(value));
  });
}

TEST_P(ElementwiseOperator, GivesEachElementWhatItGivesItAlone) {
  each_case([&](const Case& c, std::mt19937&) {
    const Type type = c.result(op());
    const Values zeros(elements(type));
    const Values together = testing::run(host_kernels(), op(), c, zeros);
    for (std::size_t at = 0; at < together.size(); ++at) {
      Case alone = c;
      alone.signature.in.assign(c.in.size(), {Rows::count(1), 1});
      for (std::size_t k = 0; k < c.in.size(); ++k) alone.in[k] = {c.in[k][at]};
      const double value = testing::run(host_kernels(), op(), alone, {0})[0];
      ASSERT_EQ(value, together[at]) << "element " << at;  // to the bit
    }
  });
}

/// The sum of weights times op's result.
double weighted(const Operator& op, const Case& c, const Values& weights) {
  const Values values = testing::run(reference_kernels(), op, c, Values(weights.size()));
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) sum += weights[i] * values[i];
  return sum;
}

/// What `term` computes for operands, result and gradient of an application.
Values gradient_of(const GradientTerm& term, const Case& c, const Type& type, const Values& result,
                   const Values& gradient) {
  Case made;
  for (const Ref& ref : term.in) {
    const bool operand = ref.of == Ref::Of::operand;
    made.signature.in.push_back(operand ? c.signature.in.at(ref.number) : type);
    made.in.push_back(operand ? c.in.at(ref.number) : ref.of == Ref::Of::result ? result : gradient);
  }
  for (std::size_t number : term.indices) {
    made.signature.indices.push_back(c.signature.indices.at(number));
    made.indices.push_back(c.indices.at(number));
  }
  made.signature.attributes = term.attributes;
  if (term.op == nullptr) return made.in.at(0);
  return testing::run(reference_kernels(), *term.op, made, Values(elements(made.result(*term.op))));
}

TEST_P(DifferentiableOperator, HasTheGradientThatDifferencesShow) {
  each_case([&](const Case& c, std::mt19937& random) {
    const Type type = c.result(op());
    const Values weights = testing::random_values(type, random);
    const Values result = testing::run(reference_kernels(), op(), c, Values(weights.size()));
    const GradientTerms terms = op().gradients(c.signature);
    ASSERT_EQ(terms.size(), c.in.size());
    for (std::size_t k = 0; k < terms.size(); ++k) {
      ASSERT_TRUE(terms[k].has_value());
      const Values gradient = gradient_of(*terms[k], c, type, result, weights);
      ASSERT_EQ(gradient.size(), c.in[k].size());
      // A few elements of each operand: differences cost two runs each.
      for (std::size_t at = random() % 3; at < gradient.size(); at += 1 + random() % (1 + gradient.size() / 4)) {
        constexpr double step = 1e-6;
        Case up = c, down = c;
        up.in[k][at] += step;
        down.in[k][at] -= step;
        const double difference = (weighted(op(), up, weights) - weighted(op(), down, weights)) / (2 * step);
        ASSERT_NEAR(gradient[at], difference, 1e-6 * (1 + std::abs(difference)))
            << "operand " << k << ", element " << at;
      }
    }
  });
}

double host_value(const Operator& op, std::vector<double> operands) {
  Case c;
  for (double operand : operands) {
    c.signature.in.push_back({Rows::count(1), 1});
    c.in.push_back({operand});
  }
  return testing::run(host_kernels(), op, c, {0})[0];
}

TEST(HostKernels, KeepTheirPrecisionOverTheWholeRange) {
  for (double x = -30; x <= 30; x += 1.0 / 64) {
    EXPECT_NEAR(host_value(op::tanh, {x}), std::tanh(x), 3e-7) << x;
    EXPECT_NEAR(host_value(op::sigmoid, {x}), 1 / (1 + std::exp(-x)), 3e-7) << x;
    EXPECT_NEAR(host_value(op::exp, {x}) / std::exp(x), 1, 1e-6) << x;
  }
  for (double x = 1e-6; x < 1e6; x *= 1.07) {
    const auto small = static_cast<float>(x);
    EXPECT_NEAR(host_value(op::log, {small}), std::log(static_cast<double>(small)), 2e-6) << x;
    EXPECT_NEAR(host_value(op::tanh, {small / 1e6}) / std::tanh(static_cast<double>(small / 1e6f)), 1, 5e-7) << x;
  }
}

TEST(HostKernels, PassNotANumberOn) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Operator* op : {&op::tanh, &op::sigmoid, &op::relu, &op::exp, &op::log, &op::square, &op::neg}) {
    EXPECT_TRUE(std::isnan(host_value(*op, {nan}))) << op->name.text();
  }
  for (const Operator* op : {&op::add, &op::sub, &op::mul, &op::div, &op::tanh_gradient, &op::sigmoid_gradient}) {
    EXPECT_TRUE(std::isnan(host_value(*op, {1, nan}))) << op->name.text();
    EXPECT_TRUE(std::isnan(host_value(*op, {nan, 1}))) << op->name.text();
  }
  EXPECT_TRUE(std::isnan(host_value(op::maximum, {nan, 1})) || std::isnan(host_value(op::maximum, {1, nan})));
}

TEST(HostKernels, ReachInfinityWhereFloatsDo) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(host_value(op::exp, {89}), inf);
  EXPECT_EQ(host_value(op::exp, {inf}), inf);
  EXPECT_EQ(host_value(op::exp, {-inf}), 0);
  EXPECT_NEAR(host_value(op::exp, {88.5}) / std::exp(88.5), 1, 1e-5);
  EXPECT_EQ(host_value(op::log, {0}), -inf);
  EXPECT_EQ(host_value(op::log, {inf}), inf);
  EXPECT_TRUE(std::isnan(host_value(op::log, {-1})));
  EXPECT_EQ(host_value(op::tanh, {inf}), 1);
  EXPECT_EQ(host_value(op::tanh, {-inf}), -1);
  EXPECT_EQ(host_value(op::sigmoid, {-inf}), 0);
}

TEST(HostKernels, CrossEntropySurvivesLargeLogits) {
  Case c;
  c.signature.in = {{Rows::count(2), 2}};
  c.signature.indices = {{Rows::count(2), 1}};
  c.in = {{1000, 0, 1000, 0}};
  c.indices = {{0, 1}};
  EXPECT_EQ(testing::run(host_kernels(), op::softmax_cross_entropy, c, {0, 0}), (Values{0, 1000}));
}

TEST(HostKernels, IndicesOutOfRangeAreNamed) {
  std::mt19937 random(1);
  Case c = testing::random_case(op::gather_rows, 4, random);
  c.signature.in[0].rows = Rows::count(1);
  c.in[0].resize(static_cast<std::size_t>(c.signature.in[0].width));
  for (const std::int32_t bad : {1, -1, std::numeric_limits<std::int32_t>::max()}) {
    c.indices[0] = {0, 0, bad, 0};
    const std::string expected = "index " + std::to_string(bad) + " at row 2; expected 0 to 0";
    const Values before(elements(c.result(op::gather_rows)));
    EXPECT_EQ(error_of<MisuseError>([&] { testing::run(host_kernels(), op::gather_rows, c, before); }), expected);
    EXPECT_EQ(error_of<MisuseError>([&] { testing::run(reference_kernels(), op::gather_rows, c, before); }), expected);
  }
  c = testing::random_case(op::segment_sum, 2, random);
  const Index edges = c.signature.in[0].rows.code();
  c.indices[0] = {0, 0, 0, static_cast<std::int32_t>(edges + 1)};
  const Values before(elements(c.result(op::segment_sum)));
  EXPECT_EQ(
      error_of<MisuseError>([&] { testing::run(host_kernels(), op::segment_sum, c, before); }),
      "segment [0, " + std::to_string(edges + 1) + ") at row 1; expected it within [0, " + std::to_string(edges) + ")");
  c = testing::random_case(op::softmax_cross_entropy, 1, random);
  c.indices[0] = {-2};
  EXPECT_EQ(error_of<MisuseError>([&] { testing::run(host_kernels(), op::softmax_cross_entropy, c, {0}); }),
            "index -2 at row 0; expected -1 to " + std::to_string(c.signature.in[0].width - 1));
}

Type counted(Index rows, Index width) { return {Rows::count(rows), width}; }

TEST(Shapes, ThatDoNotFitAreNamedWithTheOperator) {
  const auto text = [](const Operator& op, const Signature& s) { return error_of<MisuseError>([&] { infer(op, s); }); };
  EXPECT_EQ(text(op::matmul, {.in = {counted(2, 3), counted(4, 5)}}),
            "matmul: operands 2 x 3, 4 x 5; expected as many rows of the second as the first is wide");
  EXPECT_EQ(text(op::add, {.in = {{Rows::vertices(), 3}, {Rows::edges(), 3}}}),
            "add: operands vertices x 3, edges x 3; expected operands of one shape");
  EXPECT_EQ(text(op::add, {.in = {counted(2, 3)}}), "add: operands 2 x 3; expected 2 operands");
  EXPECT_EQ(text(op::gather_rows, {.in = {counted(2, 3)}}), "gather_rows: operands 2 x 3; expected 1 index operand");
  EXPECT_EQ(text(op::slice, {.in = {counted(2, 3)}, .attributes = op::columns(2, 4)}),
            "slice: operands 2 x 3; expected columns [2, 4) among those there are");
  EXPECT_EQ(text(op::place, {.in = {counted(2, 3)}, .attributes = op::at_column(2, 4)}),
            "place: operands 2 x 3; expected that it fits into a width of 4 from column 2 on");
  EXPECT_EQ(text(op::embedding, {.in = {{Rows::vertices(), 3}}, .indices = {{Rows::vertices(), 1}}}),
            "embedding: operands vertices x 3, indices vertices x 1; expected a parameter as the table");
  EXPECT_EQ(text(op::concat, {}), "concat: operands ; expected one operand or more");
}

TEST(Shapes, OfABatchNeedNoNumberOfRows) {
  const Type vertices{Rows::vertices(), 4}, edges{Rows::edges(), 4};
  EXPECT_EQ(infer(op::matmul, {.in = {vertices, counted(4, 6)}}), (Type{Rows::vertices(), 6}));
  EXPECT_EQ(infer(op::matmul_tn, {.in = {vertices, vertices}}), counted(4, 4));
  EXPECT_EQ(infer(op::embedding, {.in = {counted(9, 4)}, .indices = {{Rows::vertices(), 1}}}), vertices);
  EXPECT_EQ(infer(op::segment_sum, {.in = {edges}, .indices = {{Rows::vertices(), 2}}}), vertices);
  const auto spread = op::to_rows(Rows::edges());
  EXPECT_EQ(infer(op::segment_spread, {.in = {vertices}, .indices = {{Rows::vertices(), 2}}, .attributes = spread}),
            edges);
}

TEST(Shapes, AttributesOutOfRangeAreNamed) {
  EXPECT_EQ(error_of<MisuseError>([] { op::dropout_by(1, 1, 0); }), "dropout: rate 1.000000; expected 0 <= rate < 1");
  EXPECT_EQ(error_of<MisuseError>([] { op::dropout_by(0.5, 1, 65536); }), "dropout: site 65536; expected 0 to 65535");
}

}  // namespace
}  // namespace windrow
