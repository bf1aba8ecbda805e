// What the rules of the operators make of shapes and attributes, and what they say of bad ones.
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>

#include "tests/engine/support.h"
#include "tests/ops/cases.h"
#include "windrow/ops/operators.h"

namespace windrow {
namespace {

using testing::error_of;

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
  EXPECT_EQ(text(op::pick_gradient, {.in = {counted(2, 3)}, .indices = {counted(2, 1)}, .attributes = op::to_width(3)}),
            "pick_gradient: operands 2 x 3, indices 2 x 1; expected a width of 1");
  EXPECT_EQ(text(op::mul_columns, {.in = {counted(2, 3), counted(1, 3)}}),
            "mul_columns: operands 2 x 3, 1 x 3; expected a second of width 1, with a row for each of the first");
  EXPECT_EQ(text(op::matmul_each, {.in = {counted(2, 6), counted(2, 6)}, .attributes = op::product_of(2, 3, 4)}),
            "matmul_each: operands 2 x 6, 2 x 6; expected 2 x 6 and 2 x 12");
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
  EXPECT_EQ(error_of<MisuseError>([] { op::product_of(1, -1, 1); }), "product_of: -1; expected 0 to 16777216");
  const Signature far{.in = {counted(1, 1)}, .attributes = op::at_column(5, std::numeric_limits<Index>::min())};
  EXPECT_NE(error_of<MisuseError>([&] { infer(op::place, far); }).find("a width of -9223372036854775808"),
            std::string::npos);
  EXPECT_EQ(error_of<MisuseError>([] { op::dropout_by(1, 1, 0); }), "dropout: rate 1.000000; expected 0 <= rate < 1");
  EXPECT_EQ(error_of<MisuseError>([] { op::dropout_by(0.5, 1, 65536); }), "dropout: site 65536; expected 0 to 65535");
}

}  // namespace
}  // namespace windrow
