// Host kernels of softmax and of losses made of it, by Highway.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host_softmax.cc"
#include "hwy/foreach_target.h"
// foreach_target.h comes first.
#include <cmath>

#include "host_simd.h"
#include "windrow/ops/operators.h"

HWY_BEFORE_NAMESPACE();
namespace windrow {
namespace HWY_NAMESPACE {

/// The largest of a row, and the sum of exp(x - largest).
struct ExpSum {
  float top;
  float sum;
};

HWY_INLINE ExpSum exp_sum(const float* x, Index n) {
  const auto larger = [](V so_far, V v) HWY_ATTR { return hn::Max(so_far, v); };
  const float top = hn::GetLane(hn::MaxOfLanes(d, fold_row<1>({x}, n, hn::Set(d, -infinity), -infinity, larger)));
  const V shift = hn::Set(d, top);
  const auto add_exp = [=](V so_far, V v) HWY_ATTR { return hn::Add(so_far, exp_of(hn::Sub(v, shift))); };
  const V sums = fold_row<1>({x}, n, hn::Zero(d), -infinity, add_exp);
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
    const V dots = hn::Set(d, row_dot_of(y, g, k.out.width));
    write_row<2>(k.write, k.out.row(r), {y, g}, k.out.width,
                 [=](V a, V b) HWY_ATTR { return hn::Mul(a, hn::Sub(b, dots)); });
  }
}

void log_softmax(const HostCall& k) {
  for (Index r = 0; r < k.out.rows; ++r) {
    const float* x = k.in[0].row(r);
    const ExpSum sum = exp_sum(x, k.out.width);
    // Subtracts the two terms separately, so that rounding against a large maximum happens only once.
    const V shift = hn::Set(d, sum.top), log_sum = hn::Set(d, std::log(sum.sum));
    write_row<1>(k.write, k.out.row(r), {x}, k.out.width,
                 [=](V v) HWY_ATTR { return hn::Sub(hn::Sub(v, shift), log_sum); });
  }
}

void log_softmax_gradient(const HostCall& k) {
  for (Index r = 0; r < k.out.rows; ++r) {
    const float *y = k.in[0].row(r), *g = k.in[1].row(r);
    const V sum = hn::Set(d, row_sum_of(g, k.out.width));
    write_row<2>(k.write, k.out.row(r), {y, g}, k.out.width,
                 [=](V a, V b) HWY_ATTR { return hn::NegMulAdd(exp_of(a), sum, b); });
  }
}

void softmax_cross_entropy(const HostCall& k) {
  write_scalars(k, [&](Index r) HWY_ATTR {
    const Index label = checked_label(k.indices[0], r, k.in[0].width);
    if (label < 0) return 0.0f;
    const float* x = k.in[0].row(r);
    const ExpSum sum = exp_sum(x, k.in[0].width);
    return std::log(sum.sum) - (x[label] - sum.top);
  });
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

}  // namespace HWY_NAMESPACE
}  // namespace windrow
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace windrow {

// The kernels, each named like its operator.
// clang-format off
#define WINDROW_KERNELS(X)                                                 \
  X(softmax) X(softmax_gradient) X(log_softmax) X(log_softmax_gradient)      \
  X(softmax_cross_entropy) X(softmax_cross_entropy_gradient)
// clang-format on

#define WINDROW_EXPORT(NAME) HWY_EXPORT(NAME);
WINDROW_KERNELS(WINDROW_EXPORT)

void add_host_softmax(KernelTable<float>& table) {
#define WINDROW_ADD(NAME) table.add(op::NAME, [](const HostCall& call) { HWY_DYNAMIC_DISPATCH(NAME)(call); });
  WINDROW_KERNELS(WINDROW_ADD)
}

}  // namespace windrow
#endif  // HWY_ONCE
