// Linear operators: shapes and gradients.
#include "operators/rules.h"
#include "windrow/ops/operators.h"

namespace windrow::op {
namespace {

Type infer_matmul(const Operator& op, const Signature& s) {
  const Type &a = s.in[0], &b = s.in[1];
  require(b.rows == Rows::count(a.width), op, s, "as many rows of the second as the first is wide");
  return {a.rows, b.width};
}
Type infer_matmul_nt(const Operator& op, const Signature& s) {
  const Type &a = s.in[0], &b = s.in[1];
  require(b.rows.counted() && a.width == b.width, op, s, "two of one width, the second a parameter");
  return {a.rows, b.rows.number()};
}
Type infer_matmul_tn(const Operator& op, const Signature& s) {
  require(s.in[0].rows == s.in[1].rows, op, s, "as many rows of the one as of the other");
  return {Rows::count(s.in[0].width), s.in[1].width};
}
Type infer_transpose(const Operator& op, const Signature& s) {
  require(s.in[0].rows.counted(), op, s, "a parameter");
  return {Rows::count(s.in[0].width), s.in[0].rows.number()};
}
Type infer_row_operand(const Operator& op, const Signature& s) {
  require(s.in[1] == Type{Rows::count(1), s.in[0].width}, op, s, "a second of one row, as wide as the first");
  return s.in[0];
}
Type infer_column_dot(const Operator& op, const Signature& s) { return {Rows::count(1), same_shape(op, s).width}; }
Type infer_column_sum(const Operator&, const Signature& s) { return {Rows::count(1), s.in[0].width}; }
Type infer_spread_rows(const Operator& op, const Signature& s) {
  require(s.in[0].rows == Rows::count(1), op, s, "one row");
  return {s.attributes.rows, s.in[0].width};
}
Type infer_spread_columns(const Operator& op, const Signature& s) {
  require(s.in[0].width == 1, op, s, "a width of 1");
  return {s.in[0].rows, s.attributes.sizes[0]};
}

Terms of_column_sum(const Signature& s) {
  return {GradientTerm{&spread_rows, {gradient()}, {}, to_rows(s.in[0].rows)}};
}
Terms of_row_sum(const Signature& s) {
  return {GradientTerm{&spread_columns, {gradient()}, {}, to_width(s.in[0].width)}};
}

}  // namespace

constinit const Operator matmul = rowwise({.name = "matmul",
                                           .inputs = 2,
                                           .infer = infer_matmul,
                                           .gradients = terms<by<matmul_nt, gradient, y>, by<matmul_tn, x, gradient>>,
                                           .whole = 0b10,
                                           .zero = 0b11});
constinit const Operator matmul_nt = rowwise({.name = "matmul_nt",
                                              .inputs = 2,
                                              .infer = infer_matmul_nt,
                                              .gradients = terms<by<matmul, gradient, y>, by<matmul_tn, gradient, x>>,
                                              .whole = 0b10,
                                              .zero = 0b11});
constinit const Operator matmul_tn =
    sum_of_rows({.name = "matmul_tn",
                 .inputs = 2,
                 .infer = infer_matmul_tn,
                 .gradients = terms<by<matmul_nt, y, gradient>, by<matmul, x, gradient>>,
                 .zero = 0b11});
constinit const Operator transpose{
    .name = "transpose", .infer = infer_transpose, .gradients = term<transpose, gradient>, .zero = 0b1};
constinit const Operator add_bias = rowwise({.name = "add_bias",
                                             .inputs = 2,
                                             .infer = infer_row_operand,
                                             .gradients = terms<passed_on, by<column_sum, gradient>>,
                                             .whole = 0b10});
constinit const Operator column_sum = sum_of_rows(
    {.name = "column_sum", .infer = infer_column_sum, .gradients = of_column_sum, .zero = 0b1, .columnwise = true});
constinit const Operator row_sum =
    rowwise({.name = "row_sum", .infer = one_column, .gradients = of_row_sum, .zero = 0b1});
constinit const Operator spread_rows{.name = "spread_rows",
                                     .infer = infer_spread_rows,
                                     .gradients = term<column_sum, gradient>,
                                     .zero = 0b1,
                                     .attributes = "to_rows"};
constinit const Operator spread_columns = rowwise({.name = "spread_columns",
                                                   .infer = infer_spread_columns,
                                                   .gradients = term<row_sum, gradient>,
                                                   .zero = 0b1,
                                                   .attributes = "to_width"});

constinit const Operator mul_row = rowwise({.name = "mul_row",
                                            .inputs = 2,
                                            .infer = infer_row_operand,
                                            .gradients = terms<by<mul_row, gradient, y>, by<column_dot, x, gradient>>,
                                            .whole = 0b10,
                                            .zero = 0b11});
constinit const Operator column_dot =
    sum_of_rows({.name = "column_dot",
                 .inputs = 2,
                 .infer = infer_column_dot,
                 .gradients = terms<by<mul_row, y, gradient>, by<mul_row, x, gradient>>,
                 .zero = 0b11,
                 .columnwise = true});

Attributes to_rows(Rows rows) { return {.made_by = "to_rows", .rows = rows}; }
Attributes to_width(Index width) {
  if (width < 0) throw MisuseError("to_width: " + std::to_string(width) + "; expected 0 or more");
  return {.made_by = "to_width", .sizes = {width, 0}};
}

}  // namespace windrow::op
