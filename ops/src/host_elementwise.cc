// Host kernels of the elementwise operators and of softmax, by Highway: compiled for each instruction set, the best one
// chosen at run time.
//
// Each lane computes what every other would, so that a result depends neither on the place of an element nor on how the
// rows are cut into calls.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host_elementwise.cc"
#include "hwy/foreach_target.h"
// foreach_target.h comes first.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "host.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "windrow/ops/operators.h"

HWY_BEFORE_NAMESPACE();
namespace windrow {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr D d;

V constant(double value) { return hn::Set(d, static_cast<float>(value)); }

/// x within [-limit, limit]. In this order of operands a NaN passes.
HWY_INLINE V clamp(V x, double limit) { return hn::Max(constant(-limit), hn::Min(constant(limit), x)); }

// tanh(x) = x P(x^2) / Q(x^2), the best such quotient of degrees 5 and 3 for the relative error on |x| <= 9.02, beyond
// which tanh is 1 in float: 6e-8 before rounding, which may lead past 1.
HWY_INLINE V tanh_of(V x) {
  x = clamp(x, 9.02);
  const V t = hn::Mul(x, x);
  V p = constant(1.8165796081173373e-11);
  p = hn::MulAdd(p, t, constant(-1.2745329571964948e-08));
  p = hn::MulAdd(p, t, constant(9.255700545888745e-06));
  p = hn::MulAdd(p, t, constant(0.00291947973277609));
  p = hn::MulAdd(p, t, constant(0.12918037389101003));
  p = hn::MulAdd(p, t, constant(0.9999999402229584));
  V q = constant(0.00022792280815272622);
  q = hn::MulAdd(q, t, constant(0.02375792428420774));
  q = hn::MulAdd(q, t, constant(0.4625132050027441));
  q = hn::MulAdd(q, t, constant(1));
  return clamp(hn::Div(hn::Mul(x, p), q), 1);
}

HWY_INLINE V sigmoid_of(V x) {
  const V half = constant(0.5);
  return hn::MulAdd(half, tanh_of(hn::Mul(half, x)), half);
}

constexpr float infinity = std::numeric_limits<float>::infinity();

// Highway's are for the arguments between; the rest is ours.
HWY_INLINE V exp_of(V x) {
  const V y = hn::Exp(d, hn::Min(constant(88.722832), hn::Max(constant(-104), x)));
  const V large = hn::IfThenElse(hn::Gt(x, constant(88.722832)), hn::Set(d, infinity), y);
  return hn::IfThenElse(hn::Eq(x, x), large, x);
}

HWY_INLINE V log_of(V x) {
  const V zero = hn::Zero(d), inf = hn::Set(d, infinity);
  const V y = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(inf), hn::Log(d, x));
  const V domain = hn::IfThenElse(hn::Ge(x, zero), y, hn::Set(d, std::numeric_limits<float>::quiet_NaN()));
  return hn::IfThenElse(hn::Eq(x, inf), inf, domain);
}

/// A part of a row that is shorter than a vector is worked on in a copy.
struct Tail {
  HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)] = {};
  V load(const float* from, Index n) {
    std::copy_n(from, n, lanes);
    return hn::Load(d, lanes);
  }
  void store(V v, float* to, Index n) {
    hn::Store(v, d, lanes);
    std::copy_n(lanes, n, to);
  }
};

/// out = f(out, in...) for a row of n elements. `f` gets the old result and the operands as vectors.
template <std::size_t N, class F>
HWY_INLINE void map_row(float* out, const std::array<const float*, N>& in, Index n, F f) {
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  Index i = 0;
  const auto apply = [&](V old, auto load) HWY_ATTR {
    if constexpr (N == 1) return f(old, load(in[0]));
    if constexpr (N == 2) return f(old, load(in[0]), load(in[1]));
    if constexpr (N == 3) return f(old, load(in[0]), load(in[1]), load(in[2]));
  };
  for (; i + lanes <= n; i += lanes) {
    const auto load = [&](const float* from) HWY_ATTR { return hn::LoadU(d, from + i); };
    hn::StoreU(apply(hn::LoadU(d, out + i), load), d, out + i);
  }
  if (i == n) return;
  Tail tail;
  const auto load = [&](const float* from) HWY_ATTR { return tail.load(from + i, n - i); };
  tail.store(apply(tail.load(out + i, n - i), load), out + i, n - i);
}

template <std::size_t N, class F>
void map(const HostCall& call, F f) {
  if (call.out.rows == 0 || call.out.width == 0) return;
  bool dense = call.out.dense();
  for (const auto& in : call.in) dense = dense && in.dense();
  const Index rows = dense ? 1 : call.out.rows, width = dense ? call.out.rows * call.out.width : call.out.width;
  std::array<const float*, N> in;
  for (Index r = 0; r < rows; ++r) {
    for (std::size_t k = 0; k < N; ++k) in[k] = call.in[k].row(r);
    if (call.write == Write::add) {
      map_row(call.out.row(r), in, width, [&](V old, auto... x) HWY_ATTR { return hn::Add(old, f(x...)); });
    } else {
      map_row(call.out.row(r), in, width, [&](V, auto... x) HWY_ATTR { return f(x...); });
    }
  }
}

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
void neg(const HostCall& k) {
  map<1>(k, [](V x) HWY_ATTR { return hn::Neg(x); });
}
void scale(const HostCall& k) {
  const V factor = constant(k.attributes.values[0]);
  map<1>(k, [=](V x) HWY_ATTR { return hn::Mul(factor, x); });
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
void div_gradient(const HostCall& k) {
  map<3>(k, [](V quotient, V y, V g) HWY_ATTR { return hn::Neg(hn::Div(hn::Mul(g, quotient), y)); });
}
void maximum_gradient(const HostCall& k) {
  map<3>(k, [](V x, V y, V g) HWY_ATTR { return hn::IfThenElse(hn::Lt(x, y), constant(0), g); });
}
void maximum_gradient_strict(const HostCall& k) {
  map<3>(k, [](V x, V y, V g) HWY_ATTR { return hn::IfThenElse(hn::Gt(x, y), g, constant(0)); });
}
void sgd(const HostCall& k) {
  const V rate = constant(-k.attributes.values[0]), decay = constant(k.attributes.values[1]);
  std::array<const float*, 1> in;
  for (Index r = 0; r < k.out.rows; ++r) {
    in[0] = k.in[0].row(r);
    map_row(k.out.row(r), in, k.out.width,
            [=](V old, V g) HWY_ATTR { return hn::MulAdd(rate, hn::MulAdd(decay, old, g), old); });
  }
}

/// Gathers `f` of each vector of a row; lanes beyond its end hold `pad`.
template <class F>
HWY_INLINE V fold_row(const float* x, Index n, V start, float pad, F f) {
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  Index i = 0;
  for (; i + lanes <= n; i += lanes) start = f(start, hn::LoadU(d, x + i));
  if (i == n) return start;
  Tail tail;
  std::fill(std::begin(tail.lanes), std::end(tail.lanes), pad);
  return f(start, tail.load(x + i, n - i));
}

float sum_of(V v) { return hn::GetLane(hn::SumOfLanes(d, v)); }

/// The largest of a row, and the sum of exp(x - largest).
struct ExpSum {
  float top;
  float sum;
};

HWY_INLINE ExpSum exp_sum(const float* x, Index n) {
  const auto larger = [](V so_far, V v) HWY_ATTR { return hn::Max(so_far, v); };
  const float top = hn::GetLane(hn::MaxOfLanes(d, fold_row(x, n, hn::Set(d, -infinity), -infinity, larger)));
  const V shift = hn::Set(d, top);
  const auto add_exp = [=](V so_far, V v) HWY_ATTR { return hn::Add(so_far, exp_of(hn::Sub(v, shift))); };
  const V sums = fold_row(x, n, hn::Zero(d), -infinity, add_exp);
  return {top, sum_of(sums)};
}

void softmax(const HostCall& k) {
  for (Index r = 0; r < k.out.rows; ++r) {
    const ExpSum sum = exp_sum(k.in[0].row(r), k.out.width);
    const V shift = hn::Set(d, sum.top), share = hn::Set(d, 1 / sum.sum);
    const auto value = [=](V x) HWY_ATTR { return hn::Mul(exp_of(hn::Sub(x, shift)), share); };
    const std::array<const float*, 1> in = {k.in[0].row(r)};
    const bool adds = k.write == Write::add;
    map_row(k.out.row(r), in, k.out.width,
            [=](V old, V x) HWY_ATTR { return adds ? hn::Add(old, value(x)) : value(x); });
  }
}

void softmax_gradient(const HostCall& k) {
  for (Index r = 0; r < k.out.rows; ++r) {
    const float *y = k.in[0].row(r), *g = k.in[1].row(r);
    float dot = 0;
    for (Index c = 0; c < k.out.width; ++c) dot += y[c] * g[c];
    const V dots = hn::Set(d, dot);
    const bool adds = k.write == Write::add;
    map_row(k.out.row(r), std::array<const float*, 2>{y, g}, k.out.width, [=](V old, V a, V b) HWY_ATTR {
      const V value = hn::Mul(a, hn::Sub(b, dots));
      return adds ? hn::Add(old, value) : value;
    });
  }
}

void cross_entropy(const HostCall& k) {
  for (Index r = 0; r < k.out.rows; ++r) {
    const Index label = checked_label(k.indices[0], r, k.in[0].width);
    const float* x = k.in[0].row(r);
    float loss = 0;
    if (label >= 0) {
      const ExpSum sum = exp_sum(x, k.in[0].width);
      loss = std::log(sum.sum) - (x[label] - sum.top);
    }
    float& out = *k.out.row(r);
    out = k.write == Write::add ? out + loss : loss;
  }
}

void cross_entropy_gradient(const HostCall& k) {
  zero_unless_adding(k);
  for (Index r = 0; r < k.out.rows; ++r) {
    const Index label = checked_label(k.indices[0], r, k.in[0].width);
    if (label < 0) continue;
    const float *x = k.in[0].row(r), g = *k.in[1].row(r);
    const ExpSum sum = exp_sum(x, k.in[0].width);
    const V shift = hn::Set(d, sum.top), share = hn::Set(d, g / sum.sum);
    map_row(k.out.row(r), std::array<const float*, 1>{x}, k.out.width,
            [=](V old, V v) HWY_ATTR { return hn::MulAdd(exp_of(hn::Sub(v, shift)), share, old); });
    k.out.row(r)[label] -= g;
  }
}

/// to += factor * from.
void add_scaled(float* to, const float* from, Index n, float factor) {
  const V factors = hn::Set(d, factor);
  map_row(to, std::array<const float*, 1>{from}, n, [=](V old, V x) HWY_ATTR { return hn::MulAdd(factors, x, old); });
}

}  // namespace HWY_NAMESPACE
}  // namespace windrow
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace windrow {

// Kernel NAME: the version for the best instruction set of this machine.
#define WINDROW_KERNEL(NAME) \
  HWY_EXPORT(NAME);          \
  static void best_##NAME(const HostCall& call) { HWY_DYNAMIC_DISPATCH(NAME)(call); }

WINDROW_KERNEL(add)
WINDROW_KERNEL(sub)
WINDROW_KERNEL(mul)
WINDROW_KERNEL(div)
WINDROW_KERNEL(maximum)
WINDROW_KERNEL(neg)
WINDROW_KERNEL(scale)
WINDROW_KERNEL(tanh)
WINDROW_KERNEL(sigmoid)
WINDROW_KERNEL(relu)
WINDROW_KERNEL(exp)
WINDROW_KERNEL(log)
WINDROW_KERNEL(square)
WINDROW_KERNEL(tanh_gradient)
WINDROW_KERNEL(sigmoid_gradient)
WINDROW_KERNEL(relu_gradient)
WINDROW_KERNEL(square_gradient)
WINDROW_KERNEL(div_gradient)
WINDROW_KERNEL(maximum_gradient)
WINDROW_KERNEL(maximum_gradient_strict)
WINDROW_KERNEL(sgd)
WINDROW_KERNEL(softmax)
WINDROW_KERNEL(softmax_gradient)
WINDROW_KERNEL(cross_entropy)
WINDROW_KERNEL(cross_entropy_gradient)
#undef WINDROW_KERNEL
HWY_EXPORT(add_scaled);

void add_scaled(float* to, const float* from, Index n, float factor) {
  HWY_DYNAMIC_DISPATCH(add_scaled)(to, from, n, factor);
}

void add_host_elementwise(KernelTable<float>& table) {
  table.add(op::add, best_add);
  table.add(op::sub, best_sub);
  table.add(op::mul, best_mul);
  table.add(op::div, best_div);
  table.add(op::maximum, best_maximum);
  table.add(op::neg, best_neg);
  table.add(op::scale, best_scale);
  table.add(op::tanh, best_tanh);
  table.add(op::sigmoid, best_sigmoid);
  table.add(op::relu, best_relu);
  table.add(op::exp, best_exp);
  table.add(op::log, best_log);
  table.add(op::square, best_square);
  table.add(op::tanh_gradient, best_tanh_gradient);
  table.add(op::sigmoid_gradient, best_sigmoid_gradient);
  table.add(op::relu_gradient, best_relu_gradient);
  table.add(op::square_gradient, best_square_gradient);
  table.add(op::div_gradient, best_div_gradient);
  table.add(op::maximum_gradient, best_maximum_gradient);
  table.add(op::maximum_gradient_strict, best_maximum_gradient_strict);
  table.add(op::sgd, best_sgd);
  table.add(op::softmax, best_softmax);
  table.add(op::softmax_gradient, best_softmax_gradient);
  table.add(op::softmax_cross_entropy, best_cross_entropy);
  table.add(op::softmax_cross_entropy_gradient, best_cross_entropy_gradient);
}

}  // namespace windrow
#endif  // HWY_ONCE
