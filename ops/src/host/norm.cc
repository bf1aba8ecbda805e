// Host kernels of the normalisation of rows, by Highway.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/norm.cc"
#include "hwy/foreach_target.h"
// foreach_target.h comes first.
#include <cmath>

#include "host/simd.h"
#include "windrow/ops/operators.h"

HWY_BEFORE_NAMESPACE();
namespace windrow {
namespace HWY_NAMESPACE {

/// A row is normalised as (x - centre) * factor.
struct Norm {
  float centre, factor;
};

/// With the mean of the squares of x - centre. Two passes, so that a large mean cancels before it is squared.
HWY_INLINE Norm norm_about(float centre, const float* x, Index n, double epsilon) {
  const V at = hn::Set(d, centre);
  const auto add_square = [=](V so_far, V v) HWY_ATTR {
    const V above = hn::Sub(v, at);
    return hn::MulAdd(above, above, so_far);
  };
  const float squares = sum_row<1>({x}, n, add_square, centre);
  return {centre, 1 / std::sqrt(squares / static_cast<float>(n) + static_cast<float>(epsilon))};
}

/// Averages the differences from the first element, so that the mean of equal elements is exact: an error would be
/// multiplied by 1 / sqrt(epsilon).
HWY_INLINE float mean_of(const float* x, Index n) {
  if (n == 0) return 0;
  const V first = hn::Set(d, x[0]);
  const auto add_above = [=](V so_far, V v) HWY_ATTR { return hn::Add(so_far, hn::Sub(v, first)); };
  return x[0] + sum_row<1>({x}, n, add_above, x[0]) / static_cast<float>(n);
}

HWY_INLINE Norm layer_norm_of(const HostCall& k, Index r) {
  const Matrix<const float> x = k.in[0];
  return norm_about(mean_of(x.row(r), x.width), x.row(r), x.width, k.attributes.values[0]);
}

HWY_INLINE Norm rms_norm_of(const HostCall& k, Index r) {
  return norm_about(0, k.in[0].row(r), k.in[0].width, k.attributes.values[0]);
}

HWY_INLINE void write_normalised(const HostCall& k, Index r, Norm norm) {
  const V centre = hn::Set(d, norm.centre), factor = hn::Set(d, norm.factor);
  write_row<1>(k.write, k.out.row(r), {k.in[0].row(r)}, k.out.width,
               [=](V v) HWY_ATTR { return hn::Mul(hn::Sub(v, centre), factor); });
}

/// For y = (x - centre) * factor: factor * (g - mean - y * mean of y * (g - mean)).
HWY_INLINE void write_gradient(const HostCall& k, Index r, Norm norm, float mean) {
  const float *x = k.in[0].row(r), *g = k.in[1].row(r);
  const V centre = hn::Set(d, norm.centre), factor = hn::Set(d, norm.factor), of_all = hn::Set(d, mean);
  const auto add_product = [=](V so_far, V v, V w)
                               HWY_ATTR { return hn::MulAdd(hn::Sub(v, centre), hn::Sub(w, of_all), so_far); };
  const float dot = sum_row<2>({x, g}, k.out.width, add_product, norm.centre);
  const V slope = hn::Set(d, norm.factor * norm.factor * dot / static_cast<float>(k.out.width));
  write_row<2>(k.write, k.out.row(r), {x, g}, k.out.width, [=](V v, V w) HWY_ATTR {
    return hn::Mul(factor, hn::NegMulAdd(hn::Sub(v, centre), slope, hn::Sub(w, of_all)));
  });
}

void layer_norm(const HostCall& k) {
  for (Index r = 0; r < k.out.rows; ++r) write_normalised(k, r, layer_norm_of(k, r));
}

void layer_norm_gradient(const HostCall& k) {
  for (Index r = 0; r < k.out.rows; ++r) {
    write_gradient(k, r, layer_norm_of(k, r), mean_of(k.in[1].row(r), k.out.width));
  }
}

void rms_norm(const HostCall& k) {
  for (Index r = 0; r < k.out.rows; ++r) write_normalised(k, r, rms_norm_of(k, r));
}

void rms_norm_gradient(const HostCall& k) {
  for (Index r = 0; r < k.out.rows; ++r) write_gradient(k, r, rms_norm_of(k, r), 0);
}

}  // namespace HWY_NAMESPACE
}  // namespace windrow
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace windrow {

#define WINDROW_KERNELS(X) X(layer_norm) X(layer_norm_gradient) X(rms_norm) X(rms_norm_gradient)

WINDROW_HOST_KERNELS(add_host_norm, WINDROW_KERNELS)

}  // namespace windrow
#endif  // HWY_ONCE
