// What products in other semirings and choices do with forbidden terms, ties and what is not a number.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/engine/support.h"
#include "tests/ops/cases.h"

namespace windrow {
namespace {

using testing::elements;
using testing::error_of;
using testing::run_host;
using testing::Values;

constexpr double none = std::numeric_limits<double>::quiet_NaN(), infinite = std::numeric_limits<double>::infinity();

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
Type counted(Index rows, Index width) { return {Rows::count(rows), width}; }

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
  EXPECT_EQ(host_row(op::log_matmul, {{counted(1, 1), {-infinite}}, {counted(1, 1), {3}}}), Values{-infinite});
}

TEST(LogSums, OfTwoAreStable) {
  const auto sum = [](double x, double y) {
    return host_row(op::log_add_exp, {{counted(1, 1), {x}}, {counted(1, 1), {y}}})[0];
  };
  EXPECT_EQ(sum(-1e30f, 2), 2);
  EXPECT_EQ(sum(-1e30f, -1e30f), -1e30f);
  EXPECT_EQ(sum(-infinite, -infinite), -infinite);
  EXPECT_EQ(sum(infinite, 1), infinite);
  EXPECT_NEAR(sum(1000, 1000), 1000 + std::log(2.0), 1e-4);
  EXPECT_TRUE(std::isnan(sum(none, 1)) && std::isnan(sum(1, none)));
}

TEST(Choices, TakeTheFirstOfEqualsAndNotANumberBeforeAll) {
  const auto chosen = [](const Values& row, Index k, op::Order order = op::Order::descending, Index columns = 1) {
    return host_row(op::arg_top_k, {{counted(1, static_cast<Index>(row.size())), row}}, op::largest(k, columns, order));
  };
  EXPECT_EQ(chosen({1, 3, 2, 3}, 1), Values{1});
  EXPECT_EQ(chosen({1, 3, 2, 3}, 3), (Values{1, 3, 2}));
  EXPECT_EQ(chosen({1, 3, 2, 3}, 3, op::Order::by_place), (Values{1, 2, 3}));
  EXPECT_EQ(chosen({1, infinite, none, 3, none}, 1), Values{2});
  EXPECT_EQ(chosen({1, infinite, none, 3, none}, 3), (Values{2, 4, 1}));
  EXPECT_EQ(chosen({1, 8, 3, 7, 2, 9}, 2, op::Order::descending, 2), (Values{1, 2, 2, 0}));
  EXPECT_EQ(chosen({-infinite, -infinite}, 1), Values{0});
  const auto weights = std::pair(counted(3, 1), Values{0, 0, 0});
  EXPECT_EQ(host_row(op::argmax_matmul, {{counted(1, 3), {1, 2, 2}}, weights}), Values{1});
  EXPECT_EQ(host_row(op::argmax_matmul, {{counted(1, 3), {1, none, 2}}, weights}), Values{1});
  EXPECT_TRUE(std::isnan(host_row(op::max_matmul, {{counted(1, 3), {1, none, 2}}, weights})[0]));
  const auto gradient = std::pair(counted(1, 1), Values{5});
  for (const Operator* op : {&op::max_matmul_gradient, &op::max_matmul_weight_gradient}) {
    EXPECT_EQ(host_row(*op, {{counted(1, 3), {1, 2, 2}}, weights, gradient}), (Values{0, 5, 0})) << op->name.text();
    EXPECT_EQ(host_row(*op, {{counted(1, 3), {none, none, 2}}, weights, gradient}), (Values{5, 0, 0}))
        << op->name.text();
  }
}

TEST(Choices, RefuseNumbersOutOfRange) {
  EXPECT_EQ(error_of<MisuseError>([] { op::largest(0); }),
            "top_k: the 0 largest of 1 columns; expected 1 to 2147483647");
  EXPECT_THROW(op::largest(Index{1} << 40, Index{1} << 40), MisuseError);
  EXPECT_EQ(error_of<MisuseError>([] { op::drawn_by(1, 65536); }), "sample: site 65536; expected 0 to 65535");
  Application c{.signature = {.in = {counted(1, 2)}, .indices = {counted(1, 2)}, .attributes = {}}};
  c.signature.in = {counted(3, 2)};
  c.in = {Values(6, 1)};
  c.indices = {{0, 3}};
  EXPECT_EQ(error_of<MisuseError>([&] { run_host(op::embedding_bag, c, Values(2), Write::overwrite, 1); }),
            "index 3 at row 0; expected -1 to 2");
}

}  // namespace
}  // namespace windrow
