// Elementwise operators: shapes and gradients.
#include <cmath>

#include "operators/rules.h"
#include "windrow/ops/internal/number.h"
#include "windrow/ops/operators.h"

namespace windrow::op {
namespace {

Terms of_scale_shift(const Signature& s) {
  const double factor = s.attributes.values[0];
  return {factor == 1 ? passed_on(s) : GradientTerm{&scale, {gradient()}, {}, scaled_by(factor)}};
}
Terms of_reverse_gradient(const Signature& s) {
  return {GradientTerm{&scale, {gradient()}, {}, scaled_by(-s.attributes.values[0])}};
}

}  // namespace

/// An elementwise operator on operands of one shape. The result is zero if an operand in the bit set `zero` is zero.
static consteval Operator elementwise(OpName name, std::size_t inputs, unsigned zero, std::string_view scalar,
                                      Terms (*gradients)(const Signature&) = nullptr,
                                      std::string_view attributes = {}) {
  return {.name = name,
          .inputs = inputs,
          .infer = same_shape,
          .gradients = gradients,
          .locality = Locality::elementwise,
          .zero = zero,
          .attributes = attributes,
          .scalar = scalar};
}

constinit const Operator add = elementwise("add", 2, 0, "x + y", terms<passed_on, passed_on>);
constinit const Operator sub = elementwise("sub", 2, 0, "x - y", terms<passed_on, by<neg, gradient>>);
constinit const Operator mul = elementwise("mul", 2, 0b11, "x * y", terms<by<mul, gradient, y>, by<mul, gradient, x>>);
constinit const Operator div =
    elementwise("div", 2, 0, "x / y", terms<by<div, gradient, y>, by<div_gradient, result, y, gradient>>);
constinit const Operator maximum =
    elementwise("maximum", 2, 0, "x < y || y != y ? y : x",
                terms<by<maximum_gradient, x, y, gradient>, by<maximum_gradient_strict, y, x, gradient>>);
constinit const Operator minimum =
    elementwise("minimum", 2, 0, "y < x || y != y ? y : x",
                terms<by<maximum_gradient, y, x, gradient>, by<maximum_gradient_strict, x, y, gradient>>);
constinit const Operator log_add_exp =
    elementwise("log_add_exp", 2, 0, "(x < y || y != y ? y : x) + log1p(exp(x == y ? decltype(x)(0) : -fabs(x - y)))",
                terms<by<log_add_exp_gradient, x, y, gradient>, by<log_add_exp_gradient, y, x, gradient>>);
constinit const Operator neg = elementwise("neg", 1, 0b1, "-x", term<neg, gradient>);
constinit const Operator scale = elementwise("scale", 1, 0b1, "a * x", term<scale, gradient>, "scaled_by");
constinit const Operator scale_shift =
    elementwise("scale_shift", 1, 0, "a * x + b", of_scale_shift, "scaled_and_shifted");
constinit const Operator reciprocal =
    elementwise("reciprocal", 1, 0, "a / x", term<div_gradient, result, x, gradient>, "scaled_by");
constinit const Operator tanh = elementwise("tanh", 1, 0b1, "tanh(x)", term<tanh_gradient, result, gradient>);
constinit const Operator sigmoid =
    elementwise("sigmoid", 1, 0, "1 / (1 + exp(-x))", term<sigmoid_gradient, result, gradient>);
constinit const Operator relu = elementwise("relu", 1, 0b1, "x < 0 ? 0 : x", term<relu_gradient, result, gradient>);
constinit const Operator exp = elementwise("exp", 1, 0, "exp(x)", term<mul, result, gradient>);
constinit const Operator log = elementwise("log", 1, 0, "log(x)", term<div, gradient, x>);
constinit const Operator square = elementwise("square", 1, 0b1, "x * x", term<square_gradient, x, gradient>);
constinit const Operator sqrt = elementwise("sqrt", 1, 0b1, "sqrt(x)", term<sqrt_gradient, result, gradient>);
constinit const Operator abs = elementwise("abs", 1, 0b1, "fabs(x)", term<abs_gradient, x, gradient>);
constinit const Operator softplus =
    elementwise("softplus", 1, 0, "(x < 0 ? 0 : x) + log1p(exp(-fabs(x)))", term<softplus_gradient, x, gradient>);
constinit const Operator log_sigmoid =
    elementwise("log_sigmoid", 1, 0, "(x < 0 ? x : 0) - log1p(exp(-fabs(x)))", term<log_sigmoid_gradient, x, gradient>);
constinit const Operator binary_cross_entropy = elementwise(
    "binary_cross_entropy", 2, 0,
    "y < 0 || y > 1 ? (x - x) / (y - y) : fabs(x) * (x < 0 ? y : 1 - y) + log1p(exp(-fabs(x)))",
    terms<by<binary_cross_entropy_gradient, x, y, gradient>, by<binary_cross_entropy_target_gradient, x, gradient>>);
// gelu(x) = x * sigmoid(v) for v = sqrt(8 / pi) * (x + 0.044715 * x^3), since (1 + tanh(v / 2)) / 2 = sigmoid(v).
#define WINDROW_GELU_V(X) "decltype(x)(1.5957691216057308) * (" X " + decltype(x)(0.044715) * " X " * " X " * " X ")"
constinit const Operator gelu =
    elementwise("gelu", 1, 0b1, "x / (1 + exp(-(" WINDROW_GELU_V("x") ")))", term<gelu_gradient, x, gradient>);
// Far from 0, x is replaced by +-30, where the slopes are 0 and 1: for infinite x they would be 0 * inf, which is NaN.
#define WINDROW_GELU_X "(x > 30 ? 30 : x < -30 ? -30 : x)"
#define WINDROW_GELU_FAR_V WINDROW_GELU_V(WINDROW_GELU_X)
#define WINDROW_GELU_SLOPE_OF_V \
  "decltype(x)(1.5957691216057308) * (1 + decltype(x)(0.134145) * " WINDROW_GELU_X " * " WINDROW_GELU_X ")"
constinit const Operator gelu_gradient =
    elementwise("gelu_gradient", 2, 0b10,
                "y * (1 + " WINDROW_GELU_X " * (" WINDROW_GELU_SLOPE_OF_V ") / (1 + exp(" WINDROW_GELU_FAR_V
                "))) / (1 + exp(-(" WINDROW_GELU_FAR_V ")))");
#undef WINDROW_GELU_V
#undef WINDROW_GELU_X
#undef WINDROW_GELU_FAR_V
#undef WINDROW_GELU_SLOPE_OF_V
constinit const Operator silu = elementwise("silu", 1, 0b1, "x / (1 + exp(-x))", term<silu_gradient, x, gradient>);
constinit const Operator silu_gradient = elementwise(
    "silu_gradient", 2, 0b10, "y * (1 + (x > 104 ? 104 : x < -104 ? -104 : x) / (1 + exp(x))) / (1 + exp(-x))");
// exp(x) - 1 = tanh(x / 2) * (exp(x) + 1), without cancellation.
constinit const Operator elu = elementwise("elu", 1, 0b1, "x > 0 ? x : a * (tanh(x / 2) * (exp(x) + 1))",
                                           term<elu_gradient, x, gradient>, "with_alpha");
constinit const Operator elu_gradient =
    elementwise("elu_gradient", 2, 0b10, "x > 0 ? y : y * (a * exp(x))", nullptr, "with_alpha");
constinit const Operator leaky_relu =
    elementwise("leaky_relu", 1, 0b1, "x < 0 ? a * x : x", term<leaky_relu_gradient, x, gradient>, "with_slope");
constinit const Operator leaky_relu_gradient =
    elementwise("leaky_relu_gradient", 2, 0b10, "x > 0 ? y : a * y", nullptr, "with_slope");
constinit const Operator clamp =
    elementwise("clamp", 1, 0, "x < a ? a : x > b ? b : x", term<clamp_gradient, x, gradient>, "within");
constinit const Operator clamp_gradient =
    elementwise("clamp_gradient", 2, 0b10, "x >= a && x <= b ? y : 0", nullptr, "within");
// b is the sign of (-1)^a, or 0 if a is no whole number; see to_power().
constinit const Operator pow = elementwise("pow", 1, 0, "(x < 0 ? b : 1) * exp(a * log(b == 0 ? x : fabs(x)))",
                                           term<pow_gradient, x, gradient>, "to_power");
constinit const Operator pow_gradient = elementwise(
    "pow_gradient", 2, 0, "y * a * (x < 0 ? -b : 1) * (a == 1 ? 1 : exp((a - 1) * log(b == 0 ? x : fabs(x))))", nullptr,
    "to_power");
constinit const Operator stop_gradient = elementwise("stop_gradient", 1, 0b1, "x", terms<no_gradient>);
constinit const Operator reverse_gradient =
    elementwise("reverse_gradient", 1, 0b1, "x", of_reverse_gradient, "scaled_by");
constinit const Operator tanh_gradient = elementwise("tanh_gradient", 2, 0b10, "y * (1 - x * x)");
constinit const Operator sigmoid_gradient = elementwise("sigmoid_gradient", 2, 0b11, "y * (x - x * x)");
constinit const Operator relu_gradient = elementwise("relu_gradient", 2, 0b11, "x <= 0 ? 0 : y");
constinit const Operator square_gradient = elementwise("square_gradient", 2, 0b11, "2 * x * y");
constinit const Operator sqrt_gradient = elementwise("sqrt_gradient", 2, 0, "y / (2 * x)");
constinit const Operator abs_gradient = elementwise("abs_gradient", 2, 0b11, "x > 0 ? y : x < 0 ? -y : 0 * x");
constinit const Operator softplus_gradient = elementwise("softplus_gradient", 2, 0b10, "y / (1 + exp(-x))");
constinit const Operator log_sigmoid_gradient = elementwise("log_sigmoid_gradient", 2, 0b10, "y / (1 + exp(x))");
constinit const Operator binary_cross_entropy_gradient =
    elementwise("binary_cross_entropy_gradient", 3, 0b100, "z * ((1 - y) / (1 + exp(-x)) - y / (1 + exp(x)))");
constinit const Operator binary_cross_entropy_target_gradient =
    elementwise("binary_cross_entropy_target_gradient", 2, 0b11, "-x * y");
// If both terms are -inf, both gradients are 0.
constinit const Operator log_add_exp_gradient =
    elementwise("log_add_exp_gradient", 3, 0b100, "z / (1 + exp(x == y && x < 0 && x + x == x ? -x : y - x))");
constinit const Operator div_gradient = elementwise("div_gradient", 3, 0, "-z * x / y");
constinit const Operator maximum_gradient = elementwise("maximum_gradient", 3, 0b100, "x < y ? 0 : z");
constinit const Operator maximum_gradient_strict = elementwise("maximum_gradient_strict", 3, 0b100, "x > y ? z : 0");

constinit const Operator sgd{.name = "sgd",
                             .infer = same_shape,
                             .locality = Locality::elementwise,
                             .attributes = "at_rate",
                             .scalar = "old - a * (x + b * old)",
                             .updates = true};

Attributes scaled_by(double factor) {
  return {.made_by = "scaled_by", .values = {held_by_float("scale: factor", factor), 0}};
}
Attributes scaled_and_shifted(double factor, double shift) {
  held_by_float("scale_shift: factor", factor);
  held_by_float("scale_shift: shift", shift);
  return {.made_by = "scaled_and_shifted", .values = {factor, shift}};
}
Attributes with_alpha(double alpha) {
  if (!(0 <= alpha && is_float(alpha))) {
    throw MisuseError("elu: alpha " + shortest_text(alpha) + "; expected a finite float of 0 or more");
  }
  return {.made_by = "with_alpha", .values = {alpha, 0}};
}
Attributes with_slope(double slope) {
  if (!is_float(slope)) throw MisuseError("leaky_relu: slope " + shortest_text(slope) + "; expected a finite float");
  return {.made_by = "with_slope", .values = {slope, 0}};
}
Attributes within(double low, double high) {
  if (!(low <= high)) {
    throw MisuseError("clamp: from " + shortest_text(low) + " to " + shortest_text(high) + "; expected low <= high");
  }
  held_by_float("clamp: lower bound", low);
  held_by_float("clamp: upper bound", high);
  return {.made_by = "within", .values = {low, high}};
}
Attributes to_power(double power) {
  if (!is_positive_float(std::abs(power))) {
    throw MisuseError("pow: power " + shortest_text(power) + "; expected a finite float other than 0");
  }
  const bool whole = power == std::floor(power), even = std::fmod(power, 2) == 0;
  return {.made_by = "to_power", .values = {power, !whole ? 0.0 : even ? 1.0 : -1.0}};
}
Attributes at_rate(double rate, double decay) {
  require_rate("sgd", rate, decay);
  return {.made_by = "at_rate", .values = {rate, decay}};
}

}  // namespace windrow::op
