// Every operator of the list: its host kernel against the reference, its gradient against differences.
#include "windrow/ops/operators.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "tests/engine/support.h"
#include "tests/ops/cases.h"

namespace windrow {
namespace {

using testing::elements;
using testing::error_of;
using testing::expect_close;
using testing::Numbers;
using testing::run_host;
using testing::Values;

constexpr Index row_counts[] = {0, 1, 2, 3, 5, 16, 33, 70, 300};

/// WINDROW_TEST_SEED, or 1.
unsigned first_seed() {
  const char* given = std::getenv("WINDROW_TEST_SEED");
  return given == nullptr ? 1 : static_cast<unsigned>(std::stoul(given));
}

class EveryOperator : public ::testing::TestWithParam<const Operator*> {
 protected:
  const Operator& op() const { return *GetParam(); }
  Type type_of(const Application& c) const { return infer(op(), c.signature); }

  /// Calls test(case, random) for several shapes of each row count.
  template <class Test>
  void each_case(Numbers numbers, Test test) const {
    for (Index rows : row_counts) {
      for (unsigned repetition = 0; repetition < 4; ++repetition) {
        const unsigned seed = first_seed() + static_cast<unsigned>(rows) * 100 + repetition;
        SCOPED_TRACE("rows " + std::to_string(rows) + ", seed " + std::to_string(seed));
        std::mt19937 random(seed);
        const Application c = testing::random_case(op(), rows, random, numbers);
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
class RowwiseOperator : public EveryOperator {};
class SummingOperator : public EveryOperator {};
class DifferentiableOperator : public EveryOperator {};

INSTANTIATE_TEST_SUITE_P(All, EveryOperator, operators_that([](auto&) { return true; }), operator_name);
INSTANTIATE_TEST_SUITE_P(All, OverwritingOperator, operators_that([](auto& o) { return !o.updates; }), operator_name);
INSTANTIATE_TEST_SUITE_P(All, ElementwiseOperator,
                         operators_that([](auto& o) { return o.locality == Locality::elementwise; }), operator_name);
INSTANTIATE_TEST_SUITE_P(All, RowwiseOperator, operators_that([](auto& o) { return o.locality == Locality::rowwise; }),
                         operator_name);
INSTANTIATE_TEST_SUITE_P(All, SummingOperator,
                         operators_that([](auto& o) { return o.locality == Locality::sums_rows; }), operator_name);
INSTANTIATE_TEST_SUITE_P(All, DifferentiableOperator, operators_that([](auto& o) { return o.gradients != nullptr; }),
                         operator_name);

TEST_P(EveryOperator, GivesOnTheHostWhatTheReferenceGives) {
  for (const Numbers numbers : {Numbers::real, Numbers::whole}) {
    each_case(numbers, [&](const Application& c, std::mt19937& random) {
      const Values before = testing::random_values(type_of(c), random);
      expect_close(run_host(op(), c, before, Write::add, random()), evaluate(reference_kernels(), op(), c, before),
                   1e-5);
      if (op().updates) return;
      expect_close(run_host(op(), c, before, Write::overwrite, random()), evaluate(reference_kernels(), op(), c), 1e-5);
    });
  }
}

TEST_P(OverwritingOperator, DoesNotLookAtWhatWasThere) {
  each_case(Numbers::real, [&](const Application& c, std::mt19937& random) {
    const Values nan(elements(type_of(c)), std::numeric_limits<double>::quiet_NaN());
    for (double value : run_host(op(), c, nan, Write::overwrite, random())) ASSERT_TRUE(std::isfinite(value));
  });
}

/// Rows [begin, end) of the operands and indices that `op` does not take whole.
Application part(const Operator& op, const Application& c, Index begin, Index end) {
  const auto cut = [&](Type& type, auto& values) {
    type.rows = Rows::count(end - begin);
    values = {values.begin() + begin * type.width, values.begin() + end * type.width};
  };
  Application made = c;
  for (std::size_t k = 0; k < c.in.size(); ++k) {
    if ((op.whole >> k & 1) == 0) cut(made.signature.in[k], made.in[k]);
  }
  for (std::size_t k = 0; k < c.indices.size(); ++k) cut(made.signature.indices[k], made.indices[k]);
  return made;
}

/// The rows of the first operand, or index operand, that is not taken whole.
Index rows_of(const Operator& op, const Application& c) {
  for (std::size_t k = 0; k < c.in.size(); ++k) {
    if ((op.whole >> k & 1) == 0) return c.signature.in[k].rows.number();
  }
  return c.signature.indices.empty() ? 0 : c.signature.indices[0].rows.number();
}

TEST_P(RowwiseOperator, GivesRowsAsItGivesThemAlone) {
  each_case(Numbers::real, [&](const Application& c, std::mt19937& random) {
    const Index rows = rows_of(op(), c), cut = static_cast<Index>(random() % static_cast<unsigned>(rows + 1));
    Values parts = evaluate(reference_kernels(), op(), part(op(), c, 0, cut));
    const Values rest = evaluate(reference_kernels(), op(), part(op(), c, cut, rows));
    parts.insert(parts.end(), rest.begin(), rest.end());
    EXPECT_EQ(parts, evaluate(reference_kernels(), op(), c));
  });
}

TEST_P(SummingOperator, AddsUpOverParts) {
  each_case(Numbers::whole, [&](const Application& c, std::mt19937& random) {
    const Index rows = rows_of(op(), c), cut = static_cast<Index>(random() % static_cast<unsigned>(rows + 1));
    const Values before(elements(type_of(c)), 1.0);
    const Values first = evaluate(reference_kernels(), op(), part(op(), c, 0, cut), before);
    expect_close(evaluate(reference_kernels(), op(), part(op(), c, cut, rows), first),
                 evaluate(reference_kernels(), op(), c, before), 1e-12);
  });
}

TEST_P(ElementwiseOperator, GivesEachElementWhatItGivesItAlone) {
  each_case(Numbers::real, [&](const Application& c, std::mt19937& random) {
    const Values before = testing::random_values(type_of(c), random);
    const Values together = run_host(op(), c, before, Write::add, random());
    const std::size_t step = 1 + together.size() / 64;
    for (std::size_t at = 0; at < together.size(); at += step) {
      Application alone = c;
      alone.signature.in.assign(c.in.size(), {Rows::count(1), 1});
      for (std::size_t k = 0; k < c.in.size(); ++k) alone.in[k] = {c.in[k][at]};
      const double value = run_host(op(), alone, {before[at]}, Write::add, 1)[0];
      ASSERT_EQ(value, together[at]) << "element " << at;  // to the bit
    }
  });
}

TEST_P(ElementwiseOperator, MayBeAppliedInPlaceOfAnyOperand) {
  if (op().updates) return;  // always in place
  each_case(Numbers::real, [&](const Application& c, std::mt19937&) {
    const Type type = type_of(c);
    const Values expected = run_host(op(), c, Values(elements(type)), Write::overwrite, 1);
    for (std::size_t place = 0; place < c.in.size(); ++place) {
      std::vector<testing::Strided<float>> in;
      for (const Values& values : c.in) in.emplace_back(type, values, 0);
      std::vector<Matrix<const float>> inputs;
      for (auto& matrix : in) inputs.push_back(matrix.matrix());
      host_kernels().find(op())({inputs, {}, in[place].matrix(), c.signature.attributes, Write::overwrite});
      ASSERT_EQ(in[place].values(), expected);
    }
  });
}

TEST_P(DifferentiableOperator, HasTheGradientThatDifferencesShow) {
  each_case(Numbers::real, [&](const Application& c, std::mt19937&) {
    std::size_t size = elements(type_of(c));
    for (const Values& values : c.in) size += values.size();
    if (size > 3000) return;  // each element costs two evaluations
    ASSERT_LE(gradient_error(reference_kernels(), op(), c), 1e-6);
  });
}

TEST_P(DifferentiableOperator, GivesEachOperandAGradientOfItsType) {
  each_case(Numbers::real, [&](const Application& c, std::mt19937&) {
    const GradientTerms terms = op().gradients(c.signature);
    ASSERT_EQ(terms.size(), c.in.size());
    for (std::size_t k = 0; k < terms.size(); ++k) {
      ASSERT_TRUE(terms[k].has_value());
      Signature made{.attributes = terms[k]->attributes};
      for (const Ref& ref : terms[k]->in) {
        made.in.push_back(ref.of == Ref::Of::operand ? c.signature.in.at(ref.number) : type_of(c));
      }
      for (std::size_t number : terms[k]->indices) made.indices.push_back(c.signature.indices.at(number));
      ASSERT_EQ(terms[k]->op == nullptr ? made.in.at(0) : infer(*terms[k]->op, made), c.signature.in[k]);
    }
  });
}

double host_value(const Operator& op, std::vector<double> operands) {
  Application c;
  for (double operand : operands) {
    c.signature.in.push_back({Rows::count(1), 1});
    c.in.push_back({operand});
  }
  return run_host(op, c, {0}, Write::overwrite, 1)[0];
}

/// The first operands of `op`, the host's values of which are compared with value(x) by check(x, host, exact).
template <class Exact, class Check>
void sweep(const Operator& op, double low, double high, Exact exact, Check check) {
  constexpr Index count = 200'000;
  Application c;
  c.signature.in = {{Rows::count(1), count}};
  c.in.resize(1);
  for (Index i = 0; i < count; ++i) {
    c.in[0].push_back(static_cast<float>(low + (high - low) * static_cast<double>(i) / static_cast<double>(count)));
  }
  const Values values = run_host(op, c, Values(count), Write::overwrite, 1);
  for (std::size_t i = 0; i < values.size(); ++i) check(c.in[0][i], values[i], exact(c.in[0][i]));
}

TEST(HostKernels, KeepTheirPrecisionOverTheWholeRange) {
  const auto within = [](double low, double high) {
    return [=](double x, double host, double exact) {
      ASSERT_NEAR(host, exact, 4e-7) << x;
      ASSERT_GE(host, low) << x;
      ASSERT_LE(host, high) << x;
    };
  };
  const auto relative = [](double x, double host, double exact) { ASSERT_NEAR(host / exact, 1, 1e-6) << x; };
  sweep(
      op::tanh, -40, 40, [](double x) { return std::tanh(x); }, within(-1, 1));
  sweep(
      op::sigmoid, -40, 40, [](double x) { return 1 / (1 + std::exp(-x)); }, within(0, 1));
  sweep(
      op::tanh, 1e-6, 1, [](double x) { return std::tanh(x); }, relative);
  sweep(
      op::exp, -87.3, 88.722, [](double x) { return std::exp(x); }, relative);
  sweep(
      op::exp, 88.7, 88.7228, [](double x) { return std::exp(x); }, relative);
  const auto absolute = [](double x, double host, double exact) { ASSERT_NEAR(host, exact, 4e-6) << x; };
  sweep(
      op::log, 1e-6, 10, [](double x) { return std::log(x); }, absolute);
  sweep(
      op::log, 1, 1e9, [](double x) { return std::log(x); }, absolute);
}

TEST(HostKernels, PassNotANumberOn) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Operator* op : op::all()) {
    if (op->locality != Locality::elementwise || op->updates || op == &op::maximum_gradient_strict) continue;
    if (op == &op::scale || op == &op::maximum_gradient) continue;
    for (std::size_t at = 0; at < op->inputs; ++at) {
      if (op == &op::relu_gradient && at == 0) continue;  // passes the gradient on there
      std::vector<double> operands(op->inputs, 1.0);
      operands[at] = nan;
      EXPECT_TRUE(std::isnan(host_value(*op, operands))) << op->name.text() << ", operand " << at;
    }
  }
  EXPECT_EQ(host_value(op::relu_gradient, {nan, 5}), 5);
  Application c{{.in = {{Rows::count(3), 1}}, .indices = {{Rows::count(1), 2}}}, {{1, nan, 2}}, {{0, 3}}};
  EXPECT_TRUE(std::isnan(run_host(op::segment_max, c, {0}, Write::overwrite, 1)[0]));
}

TEST(HostKernels, ReachInfinityWhereFloatsDo) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(host_value(op::exp, {88.73}), inf);
  EXPECT_EQ(host_value(op::exp, {inf}), inf);
  EXPECT_EQ(host_value(op::exp, {-inf}), 0);
  EXPECT_EQ(host_value(op::log, {0}), -inf);
  EXPECT_EQ(host_value(op::log, {inf}), inf);
  EXPECT_TRUE(std::isnan(host_value(op::log, {-1})));
  EXPECT_EQ(host_value(op::tanh, {inf}), 1);
  EXPECT_EQ(host_value(op::tanh, {-inf}), -1);
  EXPECT_EQ(host_value(op::sigmoid, {-inf}), 0);
}

TEST(HostKernels, CrossEntropySurvivesLargeLogits) {
  const Application c{{.in = {{Rows::count(2), 2}}, .indices = {{Rows::count(2), 1}}}, {{1000, 0, 1000, 0}}, {{0, 1}}};
  EXPECT_EQ(run_host(op::softmax_cross_entropy, c, {7, 7}, Write::overwrite, 1), (Values{0, 1000}));
}

TEST(HostKernels, ARowWithoutLabelHasNoLossAndNoGradientWhateverItHolds) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Application c{{.in = {{Rows::count(1), 2}}, .indices = {{Rows::count(1), 1}}}, {{nan, 1}}, {{-1}}};
  EXPECT_EQ(run_host(op::softmax_cross_entropy, c, {7}, Write::overwrite, 1), (Values{0}));
  c.signature.in.push_back({Rows::count(1), 1});
  c.in.push_back({1});
  EXPECT_EQ(run_host(op::softmax_cross_entropy_gradient, c, {7, 7}, Write::overwrite, 1), (Values{0, 0}));
  EXPECT_EQ(run_host(op::softmax_cross_entropy_gradient, c, {7, 7}, Write::add, 1), (Values{7, 7}));
}

TEST(Gradients, AtTiesAndKinksAreAsDocumented) {
  EXPECT_EQ(host_value(op::relu_gradient, {0, 5}), 0);
  EXPECT_EQ(host_value(op::maximum_gradient, {1, 1, 5}), 5);
  EXPECT_EQ(host_value(op::maximum_gradient_strict, {1, 1, 5}), 0);
  const Application ties{{.in = {{Rows::count(4), 1}, {Rows::count(1), 1}}, .indices = {{Rows::count(1), 2}}},
                         {{1, 3, 3, 2}, {5}},
                         {{0, 4}}};
  EXPECT_EQ(run_host(op::segment_max_gradient, ties, Values(4), Write::overwrite, 1), (Values{0, 5, 0, 0}));
}

/// The text of the error that host and reference kernels both throw.
std::string text_of_both(const Operator& op, const Application& c) {
  const Values before(elements(infer(op, c.signature)));
  const std::string host = error_of<MisuseError>([&] { run_host(op, c, before, Write::add, 1); });
  EXPECT_EQ(error_of<MisuseError>([&] { evaluate(reference_kernels(), op, c, before); }), host);
  return host;
}

TEST(Indices, OutOfRangeAreNamed) {
  for (const Operator* op : {&op::gather_rows, &op::embedding, &op::scatter_rows, &op::sgd_rows}) {
    const bool gathers = op->whole != 0;
    for (const std::int32_t bad : {2, -1, std::numeric_limits<std::int32_t>::max()}) {
      Application c{{.in = {{Rows::count(gathers ? 2 : 3), 1}}, .indices = {{Rows::count(3), 1}}}, {}, {{0, 1, bad}}};
      c.in.push_back(Values(gathers ? 2 : 3));
      if (op == &op::scatter_rows) c.signature.attributes = op::to_rows(Rows::count(2));
      if (op == &op::sgd_rows) c.signature.attributes = op::rows_at_rate(Rows::count(2), 0.1);
      EXPECT_EQ(text_of_both(*op, c), "index " + std::to_string(bad) + " at row 2; expected 0 to 1") << op->name.text();
    }
  }
  for (const std::int32_t bad : {-2, 3}) {
    const Application c{{.in = {{Rows::count(1), 3}}, .indices = {{Rows::count(1), 1}}}, {{1, 2, 3}}, {{bad}}};
    EXPECT_EQ(text_of_both(op::softmax_cross_entropy, c),
              "index " + std::to_string(bad) + " at row 0; expected -1 to 2");
  }
  const Application none{{.in = {{Rows::count(0), 1}}, .indices = {{Rows::count(1), 1}}}, {{}}, {{0}}};
  EXPECT_EQ(text_of_both(op::gather_rows, none), "index 0 at row 0; expected none, since there is nothing to index");
}

TEST(Indices, BadSegmentsAreNamed) {
  using Segment = std::vector<std::int32_t>;
  for (const Segment& bad : {Segment{0, 4}, Segment{-1, 2}, Segment{2, 1}}) {
    const std::string expected =
        "segment [" + std::to_string(bad[0]) + ", " + std::to_string(bad[1]) + ") at row 0; expected it within [0, 3)";
    Application c{{.in = {{Rows::count(3), 1}}, .indices = {{Rows::count(1), 2}}}, {{1, 2, 3}}, {bad}};
    for (const Operator* op : {&op::segment_sum, &op::segment_mean, &op::segment_max}) {
      EXPECT_EQ(text_of_both(*op, c), expected) << op->name.text();
    }
    c.signature.in = {{Rows::count(1), 1}};
    c.in = {{1}};
    c.signature.attributes = op::to_rows(Rows::count(3));
    EXPECT_EQ(text_of_both(op::segment_spread, c), expected);
    EXPECT_EQ(text_of_both(op::segment_spread_mean, c), expected);
  }
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
  EXPECT_EQ(text(op::scatter_rows,
                 {.in = {counted(2, 3)}, .indices = {counted(3, 1)}, .attributes = op::to_rows(Rows::count(9))}),
            "scatter_rows: operands 2 x 3, indices 3 x 1; expected indices 2 x 1");
  EXPECT_EQ(text(op::segment_sum, {.in = {counted(2, 3)}, .indices = {counted(2, 1)}}),
            "segment_sum: operands 2 x 3, indices 2 x 1; expected indices of width 2: begin and end of each segment");
  EXPECT_EQ(text(op::matmul_tn, {.in = {counted(2, 3), counted(3, 3)}}),
            "matmul_tn: operands 2 x 3, 3 x 3; expected as many rows of the one as of the other");
  EXPECT_EQ(text(op::add_bias, {.in = {counted(2, 3), counted(2, 3)}}),
            "add_bias: operands 2 x 3, 2 x 3; expected a second of one row, as wide as the first");
  EXPECT_EQ(text(op::matmul, {.in = {counted(2, 3), {Rows::vertices(), 3}}}),
            "matmul: operands 2 x 3, vertices x 3; expected as many rows of the second as the first is wide");
  EXPECT_EQ(text(op::dropout,
                 {.in = {counted(1, 262'145)}, .indices = {counted(1, 3)}, .attributes = op::dropout_by(0.5, 1, 1)}),
            "dropout: operands 1 x 262145, indices 1 x 3; expected a width of at most 262144");
  constexpr Operator blank{.name = "blank"};
  EXPECT_EQ(text(blank, {.in = {counted(1, 1)}}), "blank: operands 1 x 1; expected an operator with a rule for types");
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

TEST(Shapes, AttributesThatWereForgottenAreNamed) {
  for (const Operator* op : op::all()) {
    if (op->attributes.empty()) continue;
    std::mt19937 random(1);
    Application c = testing::random_case(*op, 3, random);
    c.signature.attributes = {};
    const std::string text = error_of<MisuseError>([&] { infer(*op, c.signature); });
    EXPECT_NE(text.find("expected attributes made by " + std::string(op->attributes)), std::string::npos) << text;
  }
  const Signature needless{.in = {counted(1, 1)}, .attributes = op::scaled_by(1)};
  EXPECT_EQ(error_of<MisuseError>([&] { infer(op::neg, needless); }), "neg: operands 1 x 1; expected no attributes");
}

TEST(Shapes, AttributesOutOfRangeAreNamed) {
  EXPECT_EQ(error_of<MisuseError>([] { Rows::count(-1); }), "rows: -1; expected 0 or more");
  EXPECT_EQ(error_of<MisuseError>([] { op::to_width(-1); }), "to_width: -1; expected 0 or more");
  const Signature far{.in = {counted(1, 1)}, .attributes = op::at_column(5, std::numeric_limits<Index>::min())};
  EXPECT_NE(error_of<MisuseError>([&] { infer(op::place, far); }).find("a width of -9223372036854775808"),
            std::string::npos);
  EXPECT_EQ(error_of<MisuseError>([] { op::dropout_by(1, 1, 0); }), "dropout: rate 1.000000; expected 0 <= rate < 1");
  EXPECT_EQ(error_of<MisuseError>([] { op::dropout_by(0.5, 1, 65536); }), "dropout: site 65536; expected 0 to 65535");
}

}  // namespace
}  // namespace windrow
