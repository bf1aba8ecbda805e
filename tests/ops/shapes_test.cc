// What the rules of the operators make of shapes and attributes, and what they say of bad ones.
#include <functional>

#include "tests/ops/cases.h"

namespace windrow::testing {
namespace {

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
  EXPECT_EQ(
      text(op::gather_where, {.in = {counted(2, 3), counted(2, 3)}, .indices = {counted(2, 1)}}),
      "gather_where: operands 2 x 3, 2 x 3, indices 2 x 1; expected indices of width 2: a row, and what the first "
      "operand has there");
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
  const Attributes places =
      op::sliding({.channels = 2, .height = 3, .width = 3, .window_height = 2, .window_width = 2});
  EXPECT_EQ(text(op::conv2d, {.in = {counted(5, 9), counted(4, 8)}, .attributes = places}),
            "conv2d: operands 5 x 9, 4 x 8; expected a width of 18 of operand 0");
  EXPECT_EQ(text(op::conv2d, {.in = {counted(5, 18), {Rows::vertices(), 8}}, .attributes = places}),
            "conv2d: operands 5 x 18, vertices x 8; expected a parameter as filters");
  EXPECT_EQ(text(op::conv2d_filter_gradient, {.in = {counted(5, 18), counted(5, 7)}, .attributes = places}),
            "conv2d_filter_gradient: operands 5 x 18, 5 x 7; expected a multiple of 4 as width of operand 1");
  EXPECT_EQ(
      text(op::add_channel_bias, {.in = {counted(5, 7), counted(1, 2)}}),
      "add_channel_bias: operands 5 x 7, 1 x 2; expected a second of one row, with an element for each channel of "
      "the first");
  EXPECT_EQ(text(op::log_matmul, {.in = {counted(2, 3), counted(4, 5)}}),
            "log_matmul: operands 2 x 3, 4 x 5; expected as many rows of the second as the first is wide, one or more");
  EXPECT_EQ(
      text(op::log_matmul_gradient, {.in = {counted(2, 3), counted(3, 5), counted(2, 5), counted(2, 4)}}),
      "log_matmul_gradient: operands 2 x 3, 3 x 5, 2 x 5, 2 x 4; expected two operands, then a result and a gradient "
      "of its shape");
  EXPECT_EQ(text(op::top_k, {.in = {counted(2, 7)}, .attributes = op::largest(2, 3)}),
            "top_k: operands 2 x 7; expected a width that is a multiple of 3, and 6 or more");
  EXPECT_EQ(text(op::sample, {.in = {counted(2, 3)}, .indices = {counted(2, 1)}, .attributes = op::drawn_by(1, 0)}),
            "sample: operands 2 x 3, indices 2 x 1; expected indices 2 x 3");
  EXPECT_EQ(text(op::embedding_bag, {.in = {{Rows::vertices(), 3}}, .indices = {{Rows::vertices(), 4}}}),
            "embedding_bag: operands vertices x 3, indices vertices x 4; expected a parameter as the table");
  constexpr Operator blank{.name = "blank"};
  EXPECT_EQ(text(blank, {.in = {counted(1, 1)}}), "blank: operands 1 x 1; expected an operator with a rule for types");
  EXPECT_EQ(text(op::concat, {}), "concat: operands ; expected one operand or more");
}

TEST(Shapes, OfABatchNeedNoNumberOfRows) {
  const Type vertices{Rows::vertices(), 4}, edges{Rows::edges(), 4};
  EXPECT_EQ(infer(op::matmul, {.in = {vertices, counted(4, 6)}}), (Type{Rows::vertices(), 6}));
  EXPECT_EQ(infer(op::matmul_tn, {.in = {vertices, vertices}}), counted(4, 4));
  const Attributes places =
      op::sliding({.channels = 1, .height = 2, .width = 2, .window_height = 2, .window_width = 2});
  EXPECT_EQ(infer(op::conv2d, {.in = {vertices, counted(6, 4)}, .attributes = places}), (Type{Rows::vertices(), 6}));
  EXPECT_EQ(infer(op::conv2d_filter_gradient, {.in = {vertices, vertices}, .attributes = places}), counted(4, 4));
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
    Application c = random_case(*op, 3, random);
    c.signature.attributes = {};
    expect_error<MisuseError>([&] { infer(*op, c.signature); },
                              "expected attributes made by " + std::string(op->attributes));
  }
  const Signature needless{.in = {counted(1, 1)}, .attributes = op::scaled_by(1)};
  EXPECT_EQ(error_of<MisuseError>([&] { infer(op::neg, needless); }), "neg: operands 1 x 1; expected no attributes");
}

TEST(Shapes, AttributesOutOfRangeAreNamed) {
  EXPECT_EQ(error_of<MisuseError>([] { Rows::count(-1); }), "rows: -1; expected 0 or more");
  EXPECT_EQ(error_of<MisuseError>([] { op::to_width(-1); }), "to_width: -1; expected 0 or more");
  EXPECT_EQ(error_of<MisuseError>([] { op::product_of(1, -1, 1); }), "product_of: -1; expected 0 to 16777216");
  const auto sliding = [](const op::Window2d& w) { return error_of<MisuseError>([&] { op::sliding(w); }); };
  EXPECT_EQ(sliding({.channels = 1, .height = 3, .width = 0, .window_height = 1, .window_width = 1}),
            "sliding: a size or stride of 0; expected 1 to 65536");
  EXPECT_EQ(sliding({.channels = 1, .height = 3, .width = 3, .window_height = 2, .window_width = 4}),
            "sliding: a window larger than the image with its padding; expected one that fits");
  EXPECT_EQ(sliding({.channels = 1, .height = 3, .width = 3, .window_height = 2, .window_width = 2, .padding = 2}),
            "sliding: a padding of 2; expected less than the window");
  const Signature far{.in = {counted(1, 1)}, .attributes = op::at_column(5, std::numeric_limits<Index>::min())};
  expect_error<MisuseError>([&] { infer(op::place, far); }, "a width of -9223372036854775808");
  EXPECT_EQ(error_of<MisuseError>([] { op::with_alpha(-1); }), "elu: alpha -1; expected a finite float of 0 or more");
  EXPECT_EQ(error_of<MisuseError>([] { op::with_slope(std::numeric_limits<double>::infinity()); }),
            "leaky_relu: slope inf; expected a finite float");
  EXPECT_EQ(error_of<MisuseError>([] { op::within(2, 1); }), "clamp: from 2 to 1; expected low <= high");
  EXPECT_EQ(error_of<MisuseError>([] { op::to_power(0); }), "pow: power 0; expected a finite float other than 0");
  EXPECT_EQ(error_of<MisuseError>([] { op::smoothed_by(1); }),
            "smoothed_cross_entropy: epsilon 1; expected 0 <= epsilon < 1");
  EXPECT_EQ(error_of<MisuseError>([] { op::with_margin(-1); }),
            "hinge: margin -1; expected a finite float of 0 or more");
  EXPECT_EQ(error_of<MisuseError>([] { op::with_epsilon(0); }), "with_epsilon: 0; expected a finite float above 0");
  EXPECT_EQ(error_of<MisuseError>([] { op::dropout_by(1, 1, 0); }), "dropout: rate 1; expected 0 <= rate < 1");
  EXPECT_EQ(error_of<MisuseError>([] { op::dropout_by(0.5, 1, 65536); }), "dropout: site 65536; expected 0 to 65535");
}

TEST(Attributes, RefuseWhatIsNotANumberAndWhatFloatsDoNotHold) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  const std::vector<std::function<void(double)>> makers = {
      [](double x) { op::with_alpha(x); },
      [](double x) { op::with_slope(x); },
      [inf](double x) { op::within(x, inf); },
      [inf](double x) { op::within(-inf, x); },
      [](double x) { op::to_power(x); },
      [](double x) { op::smoothed_by(x); },
      [](double x) { op::with_margin(x); },
      [](double x) { op::with_epsilon(x); },
      [](double x) { op::dropout_by(x, 1, 0); },
      [](double x) { op::at_rate(x); },
      [](double x) { op::at_rate(1, x); },
      [](double x) { op::rows_at_rate(Rows::count(1), x); },
      [](double x) { op::rows_at_rate(Rows::count(1), 1, x); },
  };
  for (std::size_t m = 0; m < makers.size(); ++m) {
    for (const double wrong : {nan, 1e39, -1e39}) EXPECT_THROW(makers[m](wrong), MisuseError) << m << ", " << wrong;
  }
  EXPECT_THROW(op::scaled_by(1e39), MisuseError);
  EXPECT_THROW(op::scaled_and_shifted(-1e39, 0), MisuseError);
  EXPECT_THROW(op::scaled_and_shifted(1, 1e39), MisuseError);
  EXPECT_TRUE(std::isnan(op::scaled_by(nan).values[0])) << "may be meant";
  for (const double infinite : {inf, -inf}) {
    EXPECT_THROW(op::at_rate(infinite), MisuseError);
    EXPECT_THROW(op::at_rate(1, infinite), MisuseError);
    EXPECT_EQ(op::scaled_by(infinite).values[0], infinite) << "may be meant";
  }
}

TEST(Attributes, AreNamedAsTheyWereGiven) {
  const double nan = -std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(error_of<MisuseError>([] { op::to_power(1e-50); }),
            "pow: power 1e-50; expected a finite float other than 0");
  EXPECT_EQ(error_of<MisuseError>([] { op::with_epsilon(1e-50); }),
            "with_epsilon: 1e-50; expected a finite float above 0");
  EXPECT_EQ(error_of<MisuseError>([] { op::scaled_by(-1e39); }),
            "scale: factor -1e+39; expected a number that a float holds");
  EXPECT_EQ(error_of<MisuseError>([] { op::dropout_by(1.0000000001, 1, 0); }),
            "dropout: rate 1.0000000001; expected 0 <= rate < 1");
  EXPECT_EQ(error_of<MisuseError>([&] { op::at_rate(nan, 0.1); }),
            "sgd: rate nan, decay 0.1; expected numbers that a float holds");
}

}  // namespace
}  // namespace windrow::testing
