// Products of rows with rows: shapes and gradients.
#include <string>

#include "operators/attributes.h"
#include "operators/rules.h"
#include "windrow/ops/operators.h"

namespace windrow::op {
namespace {

Type infer_mul_columns(const Operator& op, const Signature& s) {
  require(s.in[1] == Type{s.in[0].rows, 1}, op, s, "a second of width 1, with a row for each of the first");
  return s.in[0];
}
Type infer_matmul_each(const Operator& op, const Signature& s) {
  const auto [rows, inner, columns] = product_sizes(s.attributes);
  const Type x{s.in[0].rows, rows * inner}, y{s.in[0].rows, inner * columns};
  if (s.in[0] != x || s.in[1] != y) throw shape_error(op, s, to_string(x) + " and " + to_string(y));
  return {x.rows, rows * columns};
}

Terms of_matmul_each(const Signature& s) {
  const auto [rows, inner, columns] = product_sizes(s.attributes);
  return {GradientTerm{&matmul_each_nt, {gradient(), y()}, {}, product_of(rows, columns, inner)},
          GradientTerm{&matmul_each_tn, {x(), gradient()}, {}, product_of(inner, rows, columns)}};
}
Terms of_matmul_each_nt(const Signature& s) {
  const auto [rows, inner, columns] = product_sizes(s.attributes);
  return {GradientTerm{&matmul_each, {gradient(), y()}, {}, product_of(rows, columns, inner)},
          GradientTerm{&matmul_each_tn, {gradient(), x()}, {}, product_of(columns, rows, inner)}};
}
Terms of_matmul_each_tn(const Signature& s) {
  const auto [rows, inner, columns] = product_sizes(s.attributes);
  return {GradientTerm{&matmul_each_nt, {y(), gradient()}, {}, product_of(inner, columns, rows)},
          GradientTerm{&matmul_each, {x(), gradient()}, {}, product_of(inner, rows, columns)}};
}

}  // namespace

/// A rowwise product of two operands; zero if either is zero.
static consteval Operator product(OpName name, Type (*infer)(const Operator&, const Signature&),
                                  Terms (*gradients)(const Signature&), std::string_view attributes = {}) {
  return {.name = name,
          .inputs = 2,
          .infer = infer,
          .gradients = gradients,
          .locality = Locality::rowwise,
          .zero = 0b11,
          .attributes = attributes};
}

constinit const Operator row_dot =
    product("row_dot", column_of_two, terms<by<mul_columns, y, gradient>, by<mul_columns, x, gradient>>);
constinit const Operator mul_columns =
    product("mul_columns", infer_mul_columns, terms<by<mul_columns, gradient, y>, by<row_dot, gradient, x>>);
constinit const Operator matmul_each = product("matmul_each", infer_matmul_each, of_matmul_each, "product_of");
constinit const Operator matmul_each_nt = product("matmul_each_nt", infer_matmul_each, of_matmul_each_nt, "product_of");
constinit const Operator matmul_each_tn = product("matmul_each_tn", infer_matmul_each, of_matmul_each_tn, "product_of");

Attributes product_by_widths(Index rows, Index x, Index y) {
  const Index inner = rows > 0 ? x / rows : 0;
  return product_of(rows, inner, inner > 0 ? y / inner : 0);
}

Attributes product_of(Index rows, Index inner, Index columns) {
  constexpr Index limit = Index{1} << 24;  // so that products of two sizes do not overflow
  for (const Index size : {rows, inner, columns}) {
    if (size < 0 || size > limit) {
      throw MisuseError("product_of: " + std::to_string(size) + "; expected 0 to " + std::to_string(limit));
    }
  }
  return {.made_by = "product_of", .sizes = {rows, inner, columns}};
}

}  // namespace windrow::op
