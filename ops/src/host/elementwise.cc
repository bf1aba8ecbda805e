// Host kernels of the elementwise operators, by Highway: compiled for each instruction set, the best one chosen at run
// time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/elementwise.cc"
#include "hwy/foreach_target.h"
// foreach_target.h comes first.
#include "host/simd.h"
#include "windrow/ops/operators.h"

HWY_BEFORE_NAMESPACE();
namespace windrow {
namespace HWY_NAMESPACE {

void add(const HostCall& k) {
  map<2>(k, [](V x, V y) HWY_ATTR { return hn::Add(x, y); });
}
void sub(const HostCall& k) {
  map<2>(k, [](V x, V y) HWY_ATTR { return hn::Sub(x, y); });
}
void mul(const HostCall& k) {
  map<2>(k, [](V x, V y) HWY_ATTR { return hn::Mul(x, y); });
}
void div(const HostCall& k) {
  map<2>(k, [](V x, V y) HWY_ATTR { return hn::Div(x, y); });
}
void maximum(const HostCall& k) {
  map<2>(k, [](V x, V y) HWY_ATTR { return hn::IfThenElse(hn::Eq(y, y), hn::IfThenElse(hn::Lt(x, y), y, x), y); });
}
void minimum(const HostCall& k) {
  map<2>(k, [](V x, V y) HWY_ATTR { return hn::IfThenElse(hn::Eq(y, y), hn::IfThenElse(hn::Lt(y, x), y, x), y); });
}
void neg(const HostCall& k) {
  map<1>(k, [](V x) HWY_ATTR { return hn::Neg(x); });
}
void scale(const HostCall& k) {
  const V factor = constant(k.attributes.values[0]);
  map<1>(k, [=](V x) HWY_ATTR { return hn::Mul(factor, x); });
}
void scale_shift(const HostCall& k) {
  const V factor = constant(k.attributes.values[0]), shift = constant(k.attributes.values[1]);
  map<1>(k, [=](V x) HWY_ATTR { return hn::MulAdd(factor, x, shift); });
}
void reciprocal(const HostCall& k) {
  const V factor = constant(k.attributes.values[0]);
  map<1>(k, [=](V x) HWY_ATTR { return hn::Div(factor, x); });
}
void tanh(const HostCall& k) {
  map<1>(k, [](V x) HWY_ATTR { return tanh_of(x); });
}
void sigmoid(const HostCall& k) {
  map<1>(k, [](V x) HWY_ATTR { return sigmoid_of(x); });
}
void relu(const HostCall& k) {
  map<1>(k, [](V x) HWY_ATTR { return hn::IfThenElse(hn::Lt(x, constant(0)), constant(0), x); });
}
void exp(const HostCall& k) {
  map<1>(k, [](V x) HWY_ATTR { return exp_of(x); });
}
void log(const HostCall& k) {
  map<1>(k, [](V x) HWY_ATTR { return log_of(x); });
}
void square(const HostCall& k) {
  map<1>(k, [](V x) HWY_ATTR { return hn::Mul(x, x); });
}
void sqrt(const HostCall& k) {
  map<1>(k, [](V x) HWY_ATTR { return hn::Sqrt(x); });
}
void abs(const HostCall& k) {
  map<1>(k, [](V x) HWY_ATTR { return hn::Abs(x); });
}
/// log(1 + exp(x)) for x <= 0.
HWY_INLINE V softplus_below_zero(V x) { return hn::Log1p(d, exp_of(x)); }
HWY_INLINE V softplus_of(V x) {
  const V above = hn::IfThenElse(hn::Lt(x, constant(0)), constant(0), x);
  return hn::Add(above, softplus_below_zero(hn::Neg(hn::Abs(x))));
}
void softplus(const HostCall& k) {
  map<1>(k, [](V x) HWY_ATTR { return softplus_of(x); });
}
void log_add_exp(const HostCall& k) {
  map<2>(k, [](V x, V y) HWY_ATTR {
    const V top = hn::IfThenElse(hn::Eq(y, y), hn::IfThenElse(hn::Lt(x, y), y, x), y);
    const V apart = hn::IfThenElse(hn::Eq(x, y), constant(0), hn::Abs(hn::Sub(x, y)));  // equal infinities
    return hn::Add(top, softplus_below_zero(hn::Neg(apart)));
  });
}
void log_sigmoid(const HostCall& k) {
  map<1>(k, [](V x) HWY_ATTR { return hn::Neg(softplus_of(hn::Neg(x))); });
}

/// Checks all targets before anything is written, since the result may overwrite them.
HWY_INLINE void check_targets(Matrix<const float> targets) {
  const V none = hn::Zero(d);
  const auto count = [](V so_far, V y) HWY_ATTR {
    return hn::IfThenElse(hn::Or(hn::Lt(y, constant(0)), hn::Gt(y, constant(1))), constant(1), so_far);
  };
  for (Index r = 0; r < targets.rows; ++r) {
    if (sum_of(fold_row<1>({targets.row(r)}, targets.width, none, 0, count)) == 0) continue;
    for (Index c = 0; c < targets.width; ++c) checked_target(targets, r, c);
  }
}
// softplus(x) - y x, computed as a sum of two non-negative terms to avoid cancellation.
void binary_cross_entropy(const HostCall& k) {
  check_targets(k.in[1]);
  map<2>(k, [](V x, V y) HWY_ATTR {
    const V missed = hn::IfThenElse(hn::Lt(x, constant(0)), y, hn::Sub(constant(1), y));
    return hn::Add(hn::Mul(hn::Abs(x), missed), softplus_below_zero(hn::Neg(hn::Abs(x))));
  });
}
void stop_gradient(const HostCall& k) {
  map<1>(k, [](V x) HWY_ATTR { return x; });
}
void reverse_gradient(const HostCall& k) { stop_gradient(k); }

/// 1 / (1 + exp(-x)), with a small relative error also where it is small.
HWY_INLINE V logistic(V x) { return hn::Div(constant(1), hn::Add(constant(1), exp_of(hn::Neg(x)))); }
/// gelu(x) = x * logistic(gelu_logit(x)).
HWY_INLINE V gelu_logit(V x) {
  const V cubic = hn::Mul(constant(1.5957691216057308 * 0.044715), hn::Mul(x, x));
  return hn::Mul(x, hn::Add(constant(1.5957691216057308), cubic));
}
HWY_INLINE V gelu_logit_slope(V x) {
  return hn::MulAdd(constant(3 * 1.5957691216057308 * 0.044715), hn::Mul(x, x), constant(1.5957691216057308));
}
void gelu(const HostCall& k) {
  map<1>(k, [](V x) HWY_ATTR { return hn::Mul(x, logistic(gelu_logit(x))); });
}
// Slopes far from 0 are those at a distance at which they are 0 and 1, since 0 * inf is not a number.
void gelu_gradient(const HostCall& k) {
  map<2>(k, [](V far, V g) HWY_ATTR {
    const V x = limited(far, 30);
    const V v = gelu_logit(x), bend = hn::Mul(hn::Mul(x, gelu_logit_slope(x)), logistic(hn::Neg(v)));
    return hn::Mul(hn::Mul(g, logistic(v)), hn::Add(constant(1), bend));
  });
}
void silu(const HostCall& k) {
  map<1>(k, [](V x) HWY_ATTR { return hn::Mul(x, logistic(x)); });
}
void silu_gradient(const HostCall& k) {
  map<2>(k, [](V far, V g) HWY_ATTR {
    const V x = limited(far, 104);
    return hn::Mul(hn::Mul(g, logistic(x)), hn::MulAdd(x, logistic(hn::Neg(x)), constant(1)));
  });
}
void elu(const HostCall& k) {
  const V alpha = constant(k.attributes.values[0]);
  map<1>(k, [=](V x) HWY_ATTR {
    const V below = hn::Expm1(d, hn::Max(constant(-104), hn::Min(constant(0), x)));
    return hn::IfThenElse(hn::Gt(x, constant(0)), x, hn::Mul(alpha, below));
  });
}
void elu_gradient(const HostCall& k) {
  const V alpha = constant(k.attributes.values[0]);
  map<2>(k, [=](V x, V g)
                HWY_ATTR { return hn::IfThenElse(hn::Gt(x, constant(0)), g, hn::Mul(g, hn::Mul(alpha, exp_of(x)))); });
}
void leaky_relu(const HostCall& k) {
  const V slope = constant(k.attributes.values[0]);
  map<1>(k, [=](V x) HWY_ATTR { return hn::IfThenElse(hn::Lt(x, constant(0)), hn::Mul(slope, x), x); });
}
void leaky_relu_gradient(const HostCall& k) {
  const V slope = constant(k.attributes.values[0]);
  map<2>(k, [=](V x, V g) HWY_ATTR { return hn::IfThenElse(hn::Gt(x, constant(0)), g, hn::Mul(slope, g)); });
}
void clamp(const HostCall& k) {
  const V low = constant(k.attributes.values[0]), high = constant(k.attributes.values[1]);
  map<1>(k,
         [=](V x) HWY_ATTR { return hn::IfThenElse(hn::Lt(x, low), low, hn::IfThenElse(hn::Gt(x, high), high, x)); });
}
void clamp_gradient(const HostCall& k) {
  const V low = constant(k.attributes.values[0]), high = constant(k.attributes.values[1]);
  map<2>(k, [=](V x, V g) HWY_ATTR { return hn::IfThenElseZero(hn::And(hn::Ge(x, low), hn::Le(x, high)), g); });
}
/// x^power; `sign` is that of (-1)^power, or 0 if the power is no whole number.
HWY_INLINE V power_of(V x, double power, double sign) {
  const V size = exp_of(hn::Mul(constant(power), log_of(sign == 0 ? x : hn::Abs(x))));
  return hn::IfThenElse(hn::Lt(x, constant(0)), hn::Mul(constant(sign), size), size);
}
void pow(const HostCall& k) {
  const auto [power, sign] = k.attributes.values;
  map<1>(k, [power = power, sign = sign](V x) HWY_ATTR { return power_of(x, power, sign); });
}
void pow_gradient(const HostCall& k) {
  const auto [power, sign] = k.attributes.values;
  map<2>(k, [power = power, sign = sign](V x, V g) HWY_ATTR {
    // 0 * log(0) is not a number.
    const V slope = power == 1 ? constant(1) : hn::Mul(constant(power), power_of(x, power - 1, -sign));
    return hn::Mul(g, slope);
  });
}
void tanh_gradient(const HostCall& k) {
  map<2>(k, [](V y, V g) HWY_ATTR { return hn::Mul(g, hn::NegMulAdd(y, y, constant(1))); });
}
void sigmoid_gradient(const HostCall& k) {
  map<2>(k, [](V y, V g) HWY_ATTR { return hn::Mul(g, hn::NegMulAdd(y, y, y)); });
}
void relu_gradient(const HostCall& k) {
  map<2>(k, [](V y, V g) HWY_ATTR { return hn::IfThenElse(hn::Le(y, constant(0)), constant(0), g); });
}
void square_gradient(const HostCall& k) {
  map<2>(k, [](V x, V g) HWY_ATTR { return hn::Mul(hn::Add(x, x), g); });
}
void sqrt_gradient(const HostCall& k) {
  map<2>(k, [](V y, V g) HWY_ATTR { return hn::Div(g, hn::Add(y, y)); });
}
void abs_gradient(const HostCall& k) {
  map<2>(k, [](V x, V g) HWY_ATTR {
    const V none = hn::Mul(x, constant(0));  // a NaN stays one
    return hn::IfThenElse(hn::Gt(x, constant(0)), g, hn::IfThenElse(hn::Lt(x, constant(0)), hn::Neg(g), none));
  });
}
void softplus_gradient(const HostCall& k) {
  map<2>(k, [](V x, V g) HWY_ATTR { return hn::Mul(g, logistic(x)); });
}
void log_sigmoid_gradient(const HostCall& k) {
  map<2>(k, [](V x, V g) HWY_ATTR { return hn::Mul(g, logistic(hn::Neg(x))); });
}
void log_add_exp_gradient(const HostCall& k) {
  const V none = hn::Set(d, -infinity);
  map<3>(k, [=](V x, V y, V g) HWY_ATTR {
    const auto no_sum = hn::And(hn::Eq(x, y), hn::Eq(x, none));  // of which neither has a share
    return hn::Mul(g, logistic(hn::IfThenElse(no_sum, none, hn::Sub(x, y))));
  });
}
void binary_cross_entropy_gradient(const HostCall& k) {
  // sigmoid(x) - y, without cancellation where a target is hit.
  map<3>(k, [](V x, V y, V g) HWY_ATTR {
    const V e = exp_of(hn::Neg(hn::Abs(x))), large = hn::Div(constant(1), hn::Add(constant(1), e));
    const V small = hn::Mul(e, large);
    const auto below = hn::Lt(x, constant(0));
    const V one = hn::IfThenElse(below, small, large), zero = hn::IfThenElse(below, large, small);
    return hn::Mul(g, hn::Sub(hn::Mul(hn::Sub(constant(1), y), one), hn::Mul(y, zero)));
  });
}
void binary_cross_entropy_target_gradient(const HostCall& k) {
  map<2>(k, [](V x, V g) HWY_ATTR { return hn::Neg(hn::Mul(x, g)); });
}
void div_gradient(const HostCall& k) {
  map<3>(k, [](V quotient, V y, V g) HWY_ATTR { return hn::Neg(hn::Div(hn::Mul(g, quotient), y)); });
}
void maximum_gradient(const HostCall& k) {
  map<3>(k, [](V x, V y, V g) HWY_ATTR { return hn::IfThenElse(hn::Lt(x, y), constant(0), g); });
}
void maximum_gradient_strict(const HostCall& k) {
  map<3>(k, [](V x, V y, V g) HWY_ATTR { return hn::IfThenElse(hn::Gt(x, y), g, constant(0)); });
}
auto step_of(double rate, double decay) {
  const V down = constant(-rate), decays = constant(decay);
  return [=](V old, V g) HWY_ATTR { return hn::MulAdd(down, hn::MulAdd(decays, old, g), old); };
}
void sgd(const HostCall& k) {
  const auto step = step_of(k.attributes.values[0], k.attributes.values[1]);
  each_row<1>(k,
              [&](float* out, const std::array<const float*, 1>& in, Index n) HWY_ATTR { map_row(out, in, n, step); });
}

/// to += factor * from.
void add_scaled(float* to, const float* from, Index n, float factor) {
  const V factors = hn::Set(d, factor);
  map_row(to, std::array<const float*, 1>{from}, n, [=](V old, V x) HWY_ATTR { return hn::MulAdd(factors, x, old); });
}

void descend(float* to, const float* gradient, Index n, float rate, float decay) {
  map_row(to, std::array<const float*, 1>{gradient}, n, step_of(rate, decay));
}

}  // namespace HWY_NAMESPACE
}  // namespace windrow
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace windrow {

// The kernels, each named like its operator.
// clang-format off
#define WINDROW_KERNELS(X)                                                                                            \
  X(add) X(sub) X(mul) X(div) X(maximum) X(minimum) X(neg) X(scale) X(tanh) X(sigmoid) X(relu) X(exp) X(log)          \
  X(square) X(sqrt) X(abs) X(softplus) X(tanh_gradient) X(sigmoid_gradient) X(relu_gradient) X(square_gradient)       \
  X(sqrt_gradient) X(abs_gradient) X(softplus_gradient) X(div_gradient) X(maximum_gradient)                           \
  X(maximum_gradient_strict) X(log_sigmoid) X(log_sigmoid_gradient) X(binary_cross_entropy)                           \
  X(binary_cross_entropy_gradient) X(binary_cross_entropy_target_gradient) X(sgd)                                     \
  X(scale_shift) X(reciprocal) X(gelu) X(silu) X(elu) X(leaky_relu) X(clamp) X(pow) X(gelu_gradient)                  \
  X(silu_gradient) X(elu_gradient) X(leaky_relu_gradient) X(clamp_gradient) X(pow_gradient)            \
  X(stop_gradient) X(reverse_gradient) X(log_add_exp) X(log_add_exp_gradient)
// clang-format on

#define WINDROW_EXPORT(NAME) HWY_EXPORT(NAME);
WINDROW_KERNELS(WINDROW_EXPORT)
HWY_EXPORT(add_scaled);
HWY_EXPORT(descend);

void add_scaled(float* to, const float* from, Index n, float factor) {
  HWY_DYNAMIC_DISPATCH(add_scaled)(to, from, n, factor);
}

void descend(float* to, const float* gradient, Index n, float rate, float decay) {
  HWY_DYNAMIC_DISPATCH(descend)(to, gradient, n, rate, decay);
}

void add_host_elementwise(KernelTable<float>& table) {
#define WINDROW_ADD(NAME) table.add(op::NAME, [](const HostCall& call) { HWY_DYNAMIC_DISPATCH(NAME)(call); });
  WINDROW_KERNELS(WINDROW_ADD)
}

}  // namespace windrow
#endif  // HWY_ONCE
