// What the host kernels by Highway share: functions of vectors, and loops over rows. Compiled anew for each instruction
// set, so it is included again and again: after hwy/foreach_target.h, in files that are compiled so themselves.
//
// Each lane computes what every other would, so that a result depends neither on the place of an element nor on how the
// rows are cut into calls.
#if defined(WINDROW_HOST_SIMD_H) == defined(HWY_TARGET_TOGGLE)
#ifdef WINDROW_HOST_SIMD_H
#undef WINDROW_HOST_SIMD_H
#else
#define WINDROW_HOST_SIMD_H
#endif

#include <algorithm>
#include <array>
#include <limits>

#include "host.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace windrow {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr D d;

HWY_INLINE V constant(double value) { return hn::Set(d, static_cast<float>(value)); }

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

HWY_INLINE float sum_of(V v) { return hn::GetLane(hn::SumOfLanes(d, v)); }

}  // namespace HWY_NAMESPACE
}  // namespace windrow
HWY_AFTER_NAMESPACE();
#endif  // once for each instruction set
