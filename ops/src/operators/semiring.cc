// Products in the log and max-plus semirings: shapes and gradients.
#include "operators/rules.h"
#include "windrow/ops/operators.h"

namespace windrow::op {
namespace {

Type infer_product(const Operator& op, const Signature& s) {
  require(s.in[0].width > 0 && s.in[1].rows == Rows::count(s.in[0].width), op, s,
          "as many rows of the second as the first is wide, one or more");
  return {s.in[0].rows, s.in[1].width};
}
Type product_with_gradient(const Operator& op, const Signature& s) {
  const Type product = infer_product(op, s);
  require(s.in[2] == product && s.in[3] == product, op, s, "two operands, then a result and a gradient of its shape");
  return product;
}
Type infer_gradient(const Operator& op, const Signature& s) {
  product_with_gradient(op, s);
  return s.in[0];
}
Type infer_weight_gradient(const Operator& op, const Signature& s) {
  product_with_gradient(op, s);
  return s.in[1];
}

Type choice_with_gradient(const Operator& op, const Signature& s) {
  const Type product = infer_product(op, s);
  require(s.in[2] == product, op, s, "two operands, then a gradient of the shape of their product");
  return product;
}
Type infer_choice_gradient(const Operator& op, const Signature& s) {
  choice_with_gradient(op, s);
  return s.in[0];
}
Type infer_choice_weight_gradient(const Operator& op, const Signature& s) {
  choice_with_gradient(op, s);
  return s.in[1];
}

}  // namespace

constinit const Operator log_matmul = rowwise(
    {.name = "log_matmul",
     .inputs = 2,
     .infer = infer_product,
     .gradients =
         terms<by<log_matmul_gradient, x, y, result, gradient>, by<log_matmul_weight_gradient, x, y, result, gradient>>,
     .whole = 0b10});
constinit const Operator log_matmul_gradient =
    rowwise({.name = "log_matmul_gradient", .inputs = 4, .infer = infer_gradient, .whole = 0b10, .zero = 0b1000});
constinit const Operator log_matmul_weight_gradient = sum_of_rows(
    {.name = "log_matmul_weight_gradient", .inputs = 4, .infer = infer_weight_gradient, .whole = 0b10, .zero = 0b1000});
constinit const Operator max_matmul = rowwise(
    {.name = "max_matmul",
     .inputs = 2,
     .infer = infer_product,
     .gradients = terms<by<max_matmul_gradient, x, y, gradient>, by<max_matmul_weight_gradient, x, y, gradient>>,
     .whole = 0b10});
constinit const Operator max_matmul_gradient =
    rowwise({.name = "max_matmul_gradient", .inputs = 3, .infer = infer_choice_gradient, .whole = 0b10, .zero = 0b100});
constinit const Operator max_matmul_weight_gradient = sum_of_rows({.name = "max_matmul_weight_gradient",
                                                                   .inputs = 3,
                                                                   .infer = infer_choice_weight_gradient,
                                                                   .whole = 0b10,
                                                                   .zero = 0b100});
constinit const Operator argmax_matmul = rowwise({.name = "argmax_matmul",
                                                  .inputs = 2,
                                                  .infer = infer_product,
                                                  .gradients = terms<no_gradient, no_gradient>,
                                                  .whole = 0b10});

}  // namespace windrow::op
