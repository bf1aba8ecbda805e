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

/// The values of the attributes.
struct Constants {
  V a, b;
};

// An element of the result of each operator in WINDROW_FORMULAS, from those of the operands.
HWY_INLINE V add_of(V x, V y) { return hn::Add(x, y); }
HWY_INLINE V sub_of(V x, V y) { return hn::Sub(x, y); }
HWY_INLINE V mul_of(V x, V y) { return hn::Mul(x, y); }
HWY_INLINE V div_of(V x, V y) { return hn::Div(x, y); }
HWY_INLINE V maximum_of(V x, V y) { return hn::IfThenElse(hn::Eq(y, y), hn::IfThenElse(hn::Lt(x, y), y, x), y); }
HWY_INLINE V minimum_of(V x, V y) { return hn::IfThenElse(hn::Eq(y, y), hn::IfThenElse(hn::Lt(y, x), y, x), y); }
HWY_INLINE V neg_of(V x) { return hn::Neg(x); }
HWY_INLINE V scale_of(const Constants& c, V x) { return hn::Mul(c.a, x); }
HWY_INLINE V scale_shift_of(const Constants& c, V x) { return hn::MulAdd(c.a, x, c.b); }
HWY_INLINE V reciprocal_of(const Constants& c, V x) { return hn::Div(c.a, x); }
HWY_INLINE V relu_of(V x) { return hn::IfThenZeroElse(hn::Lt(x, constant(0)), x); }
HWY_INLINE V square_of(V x) { return hn::Mul(x, x); }
HWY_INLINE V sqrt_of(V x) { return hn::Sqrt(x); }
HWY_INLINE V abs_of(V x) { return hn::Abs(x); }
/// log(1 + exp(x)) for x <= 0.
HWY_INLINE V softplus_below_zero(V x) { return hn::Log1p(d, exp_of(x)); }
HWY_INLINE V softplus_of(V x) {
  const V above = hn::IfThenElse(hn::Lt(x, constant(0)), constant(0), x);
  return hn::Add(above, softplus_below_zero(hn::Neg(hn::Abs(x))));
}
HWY_INLINE V log_add_exp_of(V x, V y) {
  const V top = hn::IfThenElse(hn::Eq(y, y), hn::IfThenElse(hn::Lt(x, y), y, x), y);
  const V apart = hn::IfThenElse(hn::Eq(x, y), constant(0), hn::Abs(hn::Sub(x, y)));  // equal infinities
  return hn::Add(top, softplus_below_zero(hn::Neg(apart)));
}
HWY_INLINE V log_sigmoid_of(V x) { return hn::Neg(softplus_of(hn::Neg(x))); }

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
HWY_INLINE V stop_gradient_of(V x) { return x; }
HWY_INLINE V reverse_gradient_of(V x) { return x; }

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
HWY_INLINE V gelu_of(V x) { return hn::Mul(x, logistic(gelu_logit(x))); }
// Far from 0, x is replaced by a value where the slopes are 0 and 1: for infinite x they would be 0 * inf, which is
// NaN.
HWY_INLINE V gelu_gradient_of(V far, V g) {
  const V x = limited(far, 30);
  const V v = gelu_logit(x), bend = hn::Mul(hn::Mul(x, gelu_logit_slope(x)), logistic(hn::Neg(v)));
  return hn::Mul(hn::Mul(g, logistic(v)), hn::Add(constant(1), bend));
}
HWY_INLINE V silu_of(V x) { return hn::Mul(x, logistic(x)); }
HWY_INLINE V silu_gradient_of(V far, V g) {
  const V x = limited(far, 104);
  return hn::Mul(hn::Mul(g, logistic(x)), hn::MulAdd(x, logistic(hn::Neg(x)), constant(1)));
}
HWY_INLINE V elu_of(const Constants& c, V x) {
  const V below = hn::Expm1(d, hn::Max(constant(-104), hn::Min(constant(0), x)));
  return hn::IfThenElse(hn::Gt(x, constant(0)), x, hn::Mul(c.a, below));
}
HWY_INLINE V elu_gradient_of(const Constants& c, V x, V g) {
  return hn::IfThenElse(hn::Gt(x, constant(0)), g, hn::Mul(g, hn::Mul(c.a, exp_of(x))));
}
HWY_INLINE V leaky_relu_of(const Constants& c, V x) {
  return hn::IfThenElse(hn::Lt(x, constant(0)), hn::Mul(c.a, x), x);
}
HWY_INLINE V leaky_relu_gradient_of(const Constants& c, V x, V g) {
  return hn::IfThenElse(hn::Gt(x, constant(0)), g, hn::Mul(c.a, g));
}
HWY_INLINE V clamp_of(const Constants& c, V x) {
  return hn::IfThenElse(hn::Lt(x, c.a), c.a, hn::IfThenElse(hn::Gt(x, c.b), c.b, x));
}
HWY_INLINE V clamp_gradient_of(const Constants& c, V x, V g) {
  return hn::IfThenElseZero(hn::And(hn::Ge(x, c.a), hn::Le(x, c.b)), g);
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
    // 0 * log(0) is NaN.
    const V slope = power == 1 ? constant(1) : hn::Mul(constant(power), power_of(x, power - 1, -sign));
    return hn::Mul(g, slope);
  });
}
HWY_INLINE V tanh_gradient_of(V y, V g) { return hn::Mul(g, hn::NegMulAdd(y, y, constant(1))); }
HWY_INLINE V sigmoid_gradient_of(V y, V g) { return hn::Mul(g, hn::NegMulAdd(y, y, y)); }
HWY_INLINE V relu_gradient_of(V y, V g) { return hn::IfThenZeroElse(hn::Le(y, constant(0)), g); }
HWY_INLINE V square_gradient_of(V x, V g) { return hn::Mul(hn::Add(x, x), g); }
HWY_INLINE V sqrt_gradient_of(V y, V g) { return hn::Div(g, hn::Add(y, y)); }
HWY_INLINE V abs_gradient_of(V x, V g) {
  const V none = hn::Mul(x, constant(0));  // NaN stays NaN
  return hn::IfThenElse(hn::Gt(x, constant(0)), g, hn::IfThenElse(hn::Lt(x, constant(0)), hn::Neg(g), none));
}
HWY_INLINE V softplus_gradient_of(V x, V g) { return hn::Mul(g, logistic(x)); }
HWY_INLINE V log_sigmoid_gradient_of(V x, V g) { return hn::Mul(g, logistic(hn::Neg(x))); }
HWY_INLINE V log_add_exp_gradient_of(V x, V y, V g) {
  const V none = hn::Set(d, -infinity);
  const auto no_sum = hn::And(hn::Eq(x, y), hn::Eq(x, none));  // then both gradients are 0
  return hn::Mul(g, logistic(hn::IfThenElse(no_sum, none, hn::Sub(x, y))));
}
// sigmoid(x) - y, without cancellation where a target is hit.
HWY_INLINE V binary_cross_entropy_gradient_of(V x, V y, V g) {
  const V e = exp_of(hn::Neg(hn::Abs(x))), large = hn::Div(constant(1), hn::Add(constant(1), e));
  const V small = hn::Mul(e, large);
  const auto below = hn::Lt(x, constant(0));
  const V one = hn::IfThenElse(below, small, large), zero = hn::IfThenElse(below, large, small);
  return hn::Mul(g, hn::Sub(hn::Mul(hn::Sub(constant(1), y), one), hn::Mul(y, zero)));
}
HWY_INLINE V binary_cross_entropy_target_gradient_of(V x, V g) { return hn::Neg(hn::Mul(x, g)); }
HWY_INLINE V div_gradient_of(V quotient, V y, V g) { return hn::Neg(hn::Div(hn::Mul(g, quotient), y)); }
HWY_INLINE V maximum_gradient_of(V x, V y, V g) { return hn::IfThenElse(hn::Lt(x, y), constant(0), g); }
HWY_INLINE V maximum_gradient_strict_of(V x, V y, V g) { return hn::IfThenElse(hn::Gt(x, y), g, constant(0)); }
// The kernels, each named like its operator.
// clang-format off
#define WINDROW_FORMULAS(X) \
  X(add) X(sub) X(mul) X(div) X(maximum) X(minimum) X(neg) X(tanh) X(sigmoid) X(relu) X(exp) X(log) X(square) \
  X(sqrt) X(abs) X(softplus) X(log_add_exp) X(log_sigmoid) X(stop_gradient) X(gelu) X(gelu_gradient) X(silu) \
  X(silu_gradient) X(tanh_gradient) X(sigmoid_gradient) X(relu_gradient) X(square_gradient) X(sqrt_gradient) \
  X(abs_gradient) X(softplus_gradient) X(log_sigmoid_gradient) X(binary_cross_entropy_target_gradient) \
  X(div_gradient) X(maximum_gradient) X(maximum_gradient_strict) X(reverse_gradient) X(scale) X(scale_shift) \
  X(reciprocal) X(elu) X(elu_gradient) X(leaky_relu) X(leaky_relu_gradient) X(clamp) X(clamp_gradient) \
  X(log_add_exp_gradient) X(binary_cross_entropy_gradient)
#define WINDROW_OTHERS(X) X(pow) X(pow_gradient) X(binary_cross_entropy) X(sgd)
// clang-format on

template <V (*f)(V)>
void map(const HostCall& k) {
  map<1>(k, [](V x) HWY_ATTR { return f(x); });
}
template <V (*f)(V, V)>
void map(const HostCall& k) {
  map<2>(k, [](V x, V y) HWY_ATTR { return f(x, y); });
}
template <V (*f)(V, V, V)>
void map(const HostCall& k) {
  map<3>(k, [](V x, V y, V z) HWY_ATTR { return f(x, y, z); });
}
HWY_INLINE Constants constants_of(const HostCall& k) {
  return {constant(k.attributes.values[0]), constant(k.attributes.values[1])};
}
template <V (*f)(const Constants&, V)>
void map(const HostCall& k) {
  map<1>(k, [c = constants_of(k)](V x) HWY_ATTR { return f(c, x); });
}
template <V (*f)(const Constants&, V, V)>
void map(const HostCall& k) {
  map<2>(k, [c = constants_of(k)](V x, V y) HWY_ATTR { return f(c, x, y); });
}

#define WINDROW_MAP(NAME) \
  void NAME(const HostCall& k) { map<NAME##_of>(k); }
WINDROW_FORMULAS(WINDROW_MAP)
#undef WINDROW_MAP

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

WINDROW_FORMULAS(WINDROW_EXPORT)
WINDROW_OTHERS(WINDROW_EXPORT)
HWY_EXPORT(add_scaled);
HWY_EXPORT(descend);

void add_scaled(float* to, const float* from, Index n, float factor) {
  HWY_DYNAMIC_DISPATCH(add_scaled)(to, from, n, factor);
}

void descend(float* to, const float* gradient, Index n, float rate, float decay) {
  HWY_DYNAMIC_DISPATCH(descend)(to, gradient, n, rate, decay);
}

void add_host_elementwise(KernelTable<float>& table) {
  WINDROW_FORMULAS(WINDROW_ADD)
  WINDROW_OTHERS(WINDROW_ADD)
}

}  // namespace windrow
#endif  // HWY_ONCE
