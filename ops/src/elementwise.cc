// Elementwise operators: shapes and gradients.
#include "rules.h"
#include "windrow/ops/operators.h"

namespace windrow::op {
namespace {

Terms of_add(const Signature&) { return {passed_on(), passed_on()}; }
Terms of_sub(const Signature&) { return {passed_on(), GradientTerm{&neg, {gradient()}}}; }
Terms of_mul(const Signature&) {
  return {GradientTerm{&mul, {gradient(), y()}}, GradientTerm{&mul, {gradient(), x()}}};
}
Terms of_div(const Signature&) {
  return {GradientTerm{&div, {gradient(), y()}}, GradientTerm{&div_gradient, {result(), y(), gradient()}}};
}
Terms of_maximum(const Signature&) {
  return {GradientTerm{&maximum_gradient, {x(), y(), gradient()}, {}, with_ties(true)},
          GradientTerm{&maximum_gradient, {y(), x(), gradient()}, {}, with_ties(false)}};
}
Terms of_neg(const Signature&) { return {GradientTerm{&neg, {gradient()}}}; }
Terms of_scale(const Signature& s) { return {GradientTerm{&scale, {gradient()}, {}, s.attributes}}; }
Terms of_tanh(const Signature&) { return {GradientTerm{&tanh_gradient, {result(), gradient()}}}; }
Terms of_sigmoid(const Signature&) { return {GradientTerm{&sigmoid_gradient, {result(), gradient()}}}; }
Terms of_relu(const Signature&) { return {GradientTerm{&relu_gradient, {result(), gradient()}}}; }
Terms of_exp(const Signature&) { return {GradientTerm{&mul, {result(), gradient()}}}; }
Terms of_log(const Signature&) { return {GradientTerm{&div, {gradient(), x()}}}; }
Terms of_square(const Signature&) { return {GradientTerm{&square_gradient, {x(), gradient()}}}; }

}  // namespace

#define WINDROW_ELEMENTWISE(NAME, INPUTS, GRADIENTS)                                                  \
  constinit const Operator NAME {                                                                     \
    .name = #NAME, .inputs = INPUTS, .infer = same_shape, .gradients = GRADIENTS, .elementwise = true \
  }

WINDROW_ELEMENTWISE(add, 2, of_add);
WINDROW_ELEMENTWISE(sub, 2, of_sub);
WINDROW_ELEMENTWISE(mul, 2, of_mul);
WINDROW_ELEMENTWISE(div, 2, of_div);
WINDROW_ELEMENTWISE(maximum, 2, of_maximum);
WINDROW_ELEMENTWISE(neg, 1, of_neg);
WINDROW_ELEMENTWISE(scale, 1, of_scale);
WINDROW_ELEMENTWISE(tanh, 1, of_tanh);
WINDROW_ELEMENTWISE(sigmoid, 1, of_sigmoid);
WINDROW_ELEMENTWISE(relu, 1, of_relu);
WINDROW_ELEMENTWISE(exp, 1, of_exp);
WINDROW_ELEMENTWISE(log, 1, of_log);
WINDROW_ELEMENTWISE(square, 1, of_square);
WINDROW_ELEMENTWISE(tanh_gradient, 2, nullptr);
WINDROW_ELEMENTWISE(sigmoid_gradient, 2, nullptr);
WINDROW_ELEMENTWISE(relu_gradient, 2, nullptr);
WINDROW_ELEMENTWISE(square_gradient, 2, nullptr);
WINDROW_ELEMENTWISE(div_gradient, 3, nullptr);
WINDROW_ELEMENTWISE(maximum_gradient, 3, nullptr);
#undef WINDROW_ELEMENTWISE

constinit const Operator sgd{.name = "sgd", .infer = same_shape, .elementwise = true, .updates = true};

Attributes scaled_by(double factor) { return {.values = {factor, 0}}; }
Attributes at_rate(double rate, double decay) { return {.values = {rate, decay}}; }

}  // namespace windrow::op
