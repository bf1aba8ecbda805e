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
// which tanh is 1 in float; rounding may lead past 1. scripts/fit-tanh prints the coefficients and the error.
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

/// out = f(in...), or out += f(in...), for a row of n elements.
template <std::size_t N, class F>
HWY_INLINE void write_row(Write write, float* out, const std::array<const float*, N>& in, Index n, F f) {
  if (write == Write::add) {
    map_row(out, in, n, [&](V old, auto... x) HWY_ATTR { return hn::Add(old, f(x...)); });
  } else {
    map_row(out, in, n, [&](V, auto... x) HWY_ATTR { return f(x...); });
  }
}

/// Calls row(out, in, n) for each row, or once for all if they lie one behind the other everywhere.
template <std::size_t N, class Row>
HWY_INLINE void each_row(const HostCall& call, Row row) {
  if (call.out.rows == 0 || call.out.width == 0) return;
  bool dense = call.out.dense();
  for (const auto& in : call.in) dense = dense && in.dense();
  const Index rows = dense ? 1 : call.out.rows, width = dense ? call.out.rows * call.out.width : call.out.width;
  std::array<const float*, N> in;
  for (Index r = 0; r < rows; ++r) {
    for (std::size_t k = 0; k < N; ++k) in[k] = call.in[k].row(r);
    row(call.out.row(r), in, width);
  }
}

template <std::size_t N, class F>
void map(const HostCall& call, F f) {
  each_row<N>(call, [&](float* out, const std::array<const float*, N>& in, Index n)
                        HWY_ATTR { write_row(call.write, out, in, n, f); });
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
  const auto step = [=](V old, V g) HWY_ATTR { return hn::MulAdd(rate, hn::MulAdd(decay, old, g), old); };
  each_row<1>(k,
              [&](float* out, const std::array<const float*, 1>& in, Index n) HWY_ATTR { map_row(out, in, n, step); });
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
    const float* x = k.in[0].row(r);
    const ExpSum sum = exp_sum(x, k.out.width);
    const V shift = hn::Set(d, sum.top), share = hn::Set(d, 1 / sum.sum);
    write_row<1>(k.write, k.out.row(r), {x}, k.out.width,
                 [=](V v) HWY_ATTR { return hn::Mul(exp_of(hn::Sub(v, shift)), share); });
  }
}

void softmax_gradient(const HostCall& k) {
  for (Index r = 0; r < k.out.rows; ++r) {
    const float *y = k.in[0].row(r), *g = k.in[1].row(r);
    float dot = 0;
    for (Index c = 0; c < k.out.width; ++c) dot += y[c] * g[c];
    const V dots = hn::Set(d, dot);
    write_row<2>(k.write, k.out.row(r), {y, g}, k.out.width,
                 [=](V a, V b) HWY_ATTR { return hn::Mul(a, hn::Sub(b, dots)); });
  }
}

void softmax_cross_entropy(const HostCall& k) {
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

void softmax_cross_entropy_gradient(const HostCall& k) {
  for (Index r = 0; r < k.out.rows; ++r) {
    const Index label = checked_label(k.indices[0], r, k.in[0].width);
    float* out = k.out.row(r);
    if (label < 0) {
      if (k.write == Write::overwrite) std::fill_n(out, k.out.width, 0.0f);
      continue;
    }
    const float *x = k.in[0].row(r), g = *k.in[1].row(r);
    const ExpSum sum = exp_sum(x, k.in[0].width);
    const V shift = hn::Set(d, sum.top), share = hn::Set(d, g / sum.sum);
    write_row<1>(k.write, out, {x}, k.out.width,
                 [=](V v) HWY_ATTR { return hn::Mul(exp_of(hn::Sub(v, shift)), share); });
    out[label] -= g;
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

// The kernels, each named like its operator.
// clang-format off
#define WINDROW_KERNELS(X)                                                                                            \
  X(add) X(sub) X(mul) X(div) X(maximum) X(neg) X(scale) X(tanh) X(sigmoid) X(relu) X(exp) X(log) X(square)           \
  X(tanh_gradient) X(sigmoid_gradient) X(relu_gradient) X(square_gradient) X(div_gradient) X(maximum_gradient)        \
  X(maximum_gradient_strict) X(sgd) X(softmax) X(softmax_gradient) X(softmax_cross_entropy)                           \
  X(softmax_cross_entropy_gradient)
// clang-format on

#define WINDROW_EXPORT(NAME) HWY_EXPORT(NAME);
WINDROW_KERNELS(WINDROW_EXPORT)
HWY_EXPORT(add_scaled);

void add_scaled(float* to, const float* from, Index n, float factor) {
  HWY_DYNAMIC_DISPATCH(add_scaled)(to, from, n, factor);
}

void add_host_elementwise(KernelTable<float>& table) {
#define WINDROW_ADD(NAME) table.add(op::NAME, [](const HostCall& call) { HWY_DYNAMIC_DISPATCH(NAME)(call); });
  WINDROW_KERNELS(WINDROW_ADD)
}

}  // namespace windrow
#endif  // HWY_ONCE
