// Shared by the host kernels that use Highway: functions of vectors, and loops over rows. Included once for each
// instruction set, after hwy/foreach_target.h, in files that are compiled for each instruction set themselves.
//
// Every lane computes in the same way, so a result depends neither on the position of an element nor on how rows are
// cut into calls.
#if defined(WINDROW_HOST_SIMD_H) == defined(HWY_TARGET_TOGGLE)
#ifdef WINDROW_HOST_SIMD_H
#undef WINDROW_HOST_SIMD_H
#else
#define WINDROW_HOST_SIMD_H
#endif

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <type_traits>

#include "host/host.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "windrow/ops/internal/row_sums.h"

HWY_BEFORE_NAMESPACE();
namespace windrow {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr D d;

HWY_INLINE V constant(double value) { return hn::Set(d, static_cast<float>(value)); }

/// x, but within [-limit, limit]. This order of operands passes NaN through.
HWY_INLINE V limited(V x, double limit) { return hn::Max(constant(-limit), hn::Min(constant(limit), x)); }

// tanh(x) = x P(x^2) / Q(x^2): the quotient of degrees 5 and 3 with the least relative error on |x| <= 9.02, beyond
// which tanh is 1 in float. Rounding may exceed 1. scripts/fit-tanh prints the coefficients and the error.
HWY_INLINE V tanh_of(V x) {
  x = limited(x, 9.02);
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
  return limited(hn::Div(hn::Mul(x, p), q), 1);
}

HWY_INLINE V sigmoid_of(V x) {
  const V half = constant(0.5);
  return hn::MulAdd(half, tanh_of(hn::Mul(half, x)), half);
}

constexpr float infinity = std::numeric_limits<float>::infinity();

// Highway's functions cover finite arguments of normal size; the code here handles the rest.
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

/// The end of a row, which is shorter than a vector. Machines that can load and store single lanes do so; on others the
/// end is processed in a copy.
class Tail {
 public:
  explicit Tail(Index n) : n_(static_cast<std::size_t>(n)) {}
  /// The lanes beyond the end hold `pad`.
  HWY_INLINE V load(const float* from, float pad = 0) {
    if constexpr (single_lanes) {
      const auto within = hn::FirstN(d, n_);
      return hn::IfThenElse(within, hn::MaskedLoad(within, d, from), hn::Set(d, pad));
    }
    hn::Store(hn::Set(d, pad), d, lanes_);
    copy(from, lanes_);
    return hn::Load(d, lanes_);
  }
  HWY_INLINE void store(V v, float* to) {
    if constexpr (single_lanes) return hn::BlendedStore(v, hn::FirstN(d, n_), d, to);
    hn::Store(v, d, lanes_);
    copy(lanes_, to);
  }

 private:
  /// Copies n_ elements in parts of fixed sizes. A call of memcpy would take longer than the rest of a short row.
  HWY_INLINE void copy(const float* from, float* to) const {
    static_assert(hn::MaxLanes(d) <= 16);
    const auto copy_if_part = [&](auto part) HWY_ATTR {
      if constexpr (part < hn::MaxLanes(d)) {
        if ((n_ & part) == 0) return;
        std::memcpy(to, from, part * sizeof(float));
        from += part;
        to += part;
      }
    };
    copy_if_part(std::integral_constant<std::size_t, 8>());
    copy_if_part(std::integral_constant<std::size_t, 4>());
    copy_if_part(std::integral_constant<std::size_t, 2>());
    copy_if_part(std::integral_constant<std::size_t, 1>());
  }

  static constexpr bool single_lanes = HWY_MEM_OPS_MIGHT_FAULT == 0;
  const std::size_t n_;
  HWY_ALIGN float lanes_[HWY_MAX_BYTES / sizeof(float)];
};

/// f(so_far, in[0], in[1], ...), where `load` makes a vector of each operand.
template <std::size_t N, class F, class Load>
HWY_INLINE V call_with(F f, V so_far, const std::array<const float*, N>& in, Load load) {
  if constexpr (N == 0) return f(so_far);
  if constexpr (N == 1) return f(so_far, load(in[0]));
  if constexpr (N == 2) return f(so_far, load(in[0]), load(in[1]));
  if constexpr (N == 3) return f(so_far, load(in[0]), load(in[1]), load(in[2]));
}

/// out = f(out, in...) for a row of n elements. `f` takes the old result and the operands as vectors.
template <std::size_t N, class F>
HWY_INLINE void map_row(float* out, const std::array<const float*, N>& in, Index n, F f) {
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  Index i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto load = [&](const float* from) HWY_ATTR { return hn::LoadU(d, from + i); };
    hn::StoreU(call_with(f, load(out), in, load), d, out + i);
  }
  if (i == n) return;
  Tail tail(n - i);
  const auto load = [&](const float* from) HWY_ATTR { return tail.load(from + i); };
  tail.store(call_with(f, load(out), in, load), out + i);
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

/// Calls row(out, in, n) for each row, or once for all rows if they are contiguous in every matrix.
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

/// so_far = f(so_far, in...) for each vector of a row of n elements. Lanes beyond its end hold `pad`.
template <std::size_t N, class F>
HWY_INLINE V fold_row(const std::array<const float*, N>& in, Index n, V so_far, float pad, F f) {
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  Index i = 0;
  for (; i + lanes <= n; i += lanes) {
    so_far = call_with(f, so_far, in, [&](const float* from) HWY_ATTR { return hn::LoadU(d, from + i); });
  }
  if (i == n) return so_far;
  Tail tail(n - i);
  return call_with(f, so_far, in, [&](const float* from) HWY_ATTR { return tail.load(from + i, pad); });
}

HWY_INLINE float sum_of(V v) { return hn::GetLane(hn::SumOfLanes(d, v)); }

/// The sum of the lanes of fold_row() from zero on. Sums of blocks of a long row are added in double: row_sums.h.
template <std::size_t N, class F>
HWY_INLINE float sum_row(std::array<const float*, N> in, Index n, F f, float pad = 0) {
  const Index block = rows_of_block * static_cast<Index>(hn::Lanes(d));
  if (n <= block) return sum_of(fold_row<N>(in, n, hn::Zero(d), pad, f));
  double sum = 0;
  for (Index i = 0; i < n; i += block) {
    sum += static_cast<double>(sum_of(fold_row<N>(in, std::min(block, n - i), hn::Zero(d), pad, f)));
    for (const float*& x : in) x += block;
  }
  return static_cast<float>(sum);
}

HWY_INLINE float row_sum_of(const float* x, Index n) {
  return sum_row<1>({x}, n, [](V so_far, V v) HWY_ATTR { return hn::Add(so_far, v); });
}

HWY_INLINE float row_dot_of(const float* x, const float* y, Index n) {
  return sum_row<2>({x, y}, n, [](V so_far, V v, V w) HWY_ATTR { return hn::MulAdd(v, w, so_far); });
}

/// The larger one, or NaN if one is NaN; `so_far` if they are equal.
HWY_INLINE V larger(V so_far, V v) { return hn::IfThenElse(hn::Or(hn::Gt(v, so_far), hn::IsNaN(v)), v, so_far); }

/// The maximum of n elements: NaN if one is NaN, -infinity without elements.
HWY_INLINE float maximum_of(const float* x, Index n) {
  const V tops =
      fold_row<1>({x}, n, hn::Set(d, -infinity), -infinity, [](V so_far, V v) HWY_ATTR { return larger(so_far, v); });
  const bool counts = hn::AllFalse(d, hn::IsNaN(tops));
  return counts ? hn::GetLane(hn::MaxOfLanes(d, tops)) : std::numeric_limits<float>::quiet_NaN();
}

/// The column of the first NaN of a row, or otherwise of its first maximum. The row is not empty.
HWY_INLINE Index first_maximum(const float* x, Index n) {
  const float top = maximum_of(x, n);
  return std::find_if(x, x + n, [top](float v) { return top == top ? v == top : v != v; }) - x;
}

/// Writes the only element of a row of the result.
HWY_INLINE void write_scalar(const HostCall& k, Index row, float value) {
  float& out = *k.out.row(row);
  out = k.write == Write::add ? out + value : value;
}

/// Writes value(r) to the only element of each row of the result.
template <class Value>
HWY_INLINE void write_scalars(const HostCall& k, Value value) {
  for (Index r = 0; r < k.out.rows; ++r) write_scalar(k, r, value(r));
}

/// For some columns of rows, or terms of sums: the first NaN or otherwise the first maximum, and the number of those
/// before it.
struct Top {
  V value, place;
};
/// The Top of load(i) for i in [first, last), which is not empty.
template <class Load>
HWY_INLINE Top top_of(Index first, Index last, Load load) {
  Top top{load(first), hn::Zero(d)};
  for (Index i = first + 1; i < last; ++i) {
    const V x = load(i);
    const auto higher = hn::Or(hn::Gt(x, top.value), hn::AndNot(hn::IsNaN(top.value), hn::IsNaN(x)));
    top.value = hn::IfThenElse(higher, x, top.value);
    top.place = hn::IfThenElse(higher, hn::Set(d, static_cast<float>(i - first)), top.place);
  }
  return top;
}

}  // namespace HWY_NAMESPACE
}  // namespace windrow
HWY_AFTER_NAMESPACE();

// Defines ADD(table), which adds the kernels of KERNELS(X), each named like its operator. To be used in HWY_ONCE.
#define WINDROW_EXPORT(NAME) HWY_EXPORT(NAME);
#define WINDROW_ADD(NAME) table.add(op::NAME, [](const HostCall& call) { HWY_DYNAMIC_DISPATCH(NAME)(call); });
#define WINDROW_HOST_KERNELS(ADD, KERNELS) \
  KERNELS(WINDROW_EXPORT)                  \
  void ADD(KernelTable<float>& table) { KERNELS(WINDROW_ADD) }
#endif  // once for each instruction set
