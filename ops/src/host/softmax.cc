// Host kernels of softmax and of losses made of it, by Highway.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/softmax.cc"
#include "hwy/foreach_target.h"
// foreach_target.h comes first.
#include <cmath>
#include <vector>

#include "host/simd.h"
#include "windrow/ops/operators.h"

HWY_BEFORE_NAMESPACE();
namespace windrow {
namespace HWY_NAMESPACE {

/// The largest of a row, and the sum of exp(x - largest).
struct ExpSum {
  float top;
  float sum;
};

/// The maximum of a row that contains no NaN. Otherwise any number: the sums below are NaN then.
HWY_INLINE float top_of(const float* x, Index n) {
  const auto larger_one = [](V so_far, V v) HWY_ATTR { return hn::Max(so_far, v); };
  return hn::GetLane(hn::MaxOfLanes(d, fold_row<1>({x}, n, hn::Set(d, -infinity), -infinity, larger_one)));
}

/// The sum of exp(x - shift). A shift that is not finite makes it NaN.
HWY_INLINE float exp_sum_above(float shift, const float* x, Index n) {
  const V by = hn::Set(d, shift);
  const auto add_exp = [=](V so_far, V v) HWY_ATTR { return hn::Add(so_far, exp_of(hn::Sub(v, by))); };
  return sum_row<1>({x}, n, add_exp, -infinity);
}

HWY_INLINE ExpSum exp_sum(const float* x, Index n) {
  const float top = top_of(x, n);
  return {top, exp_sum_above(top, x, n)};
}

/// Rows of few columns, one row per lane: a vector holds one column of as many rows as it has lanes. So eight rows of
/// five columns take five exponentials of vectors instead of eight, and no sums across lanes.
struct NarrowRows {
  static constexpr Index most_columns = 16, most_stride = 1 << 20;  // so that offsets are 32-bit integers
  static constexpr std::size_t most_lanes = HWY_MAX_BYTES / sizeof(float);

  HWY_ALIGN float exps[most_columns][most_lanes];  // exp(x - top), by column and row
  HWY_ALIGN float tops[most_lanes];                // the largest of each row
  HWY_ALIGN float sums[most_lanes];                // the sum of its exps

  static bool fit(const Matrix<const float>& x) { return x.width <= most_columns && x.stride <= most_stride; }

  /// Takes `count` rows from `first` on, at least one and at most as many as there are lanes. The other lanes repeat
  /// the last row.
  HWY_INLINE NarrowRows(const Matrix<const float>& x, Index first, Index count) {
    constexpr hn::RebindToSigned<D> integers;
    const auto row = hn::Min(hn::Iota(integers, 0), hn::Set(integers, static_cast<std::int32_t>(count - 1)));
    const auto offset = hn::Mul(row, hn::Set(integers, static_cast<std::int32_t>(x.stride)));
    V top = hn::Set(d, -infinity), sum = hn::Zero(d);
    for (Index c = 0; c < x.width; ++c) {
      const V v = hn::GatherIndex(d, x.row(first) + c, offset);
      hn::Store(v, d, exps[c]);
      top = hn::Max(top, v);
    }
    for (Index c = 0; c < x.width; ++c) {
      const V e = exp_of(hn::Sub(hn::Load(d, exps[c]), top));
      hn::Store(e, d, exps[c]);
      sum = hn::Add(sum, e);
    }
    hn::Store(top, d, tops);
    hn::Store(sum, d, sums);
  }

  /// Replaces the sums by their logarithms.
  HWY_INLINE void take_logs() { hn::Store(log_of(hn::Load(d, sums)), d, sums); }
};

/// Calls f(rows, first, count) for all rows of x, some at a time.
template <class F>
HWY_INLINE void each_narrow(const Matrix<const float>& x, F f) {
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  for (Index first = 0; first < x.rows; first += lanes) {
    const Index count = std::min(lanes, x.rows - first);
    NarrowRows rows(x, first, count);
    f(rows, first, count);
  }
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
  const Matrix<const float> x = k.in[0];
  const auto loss = [&](Index r, float top, float log_sum) {
    const Index label = checked_label(k.indices[0], r, x.width);
    return label < 0 ? 0.0f : log_sum - (x.row(r)[label] - top);
  };
  if (NarrowRows::fit(x)) {
    each_narrow(x, [&](NarrowRows& rows, Index first, Index count) HWY_ATTR {
      rows.take_logs();
      for (Index i = 0; i < count; ++i) write_scalar(k, first + i, loss(first + i, rows.tops[i], rows.sums[i]));
    });
  } else {
    for (Index r = 0; r < x.rows; ++r) {
      const ExpSum sum = exp_sum(x.row(r), x.width);
      write_scalar(k, r, loss(r, sum.top, std::log(sum.sum)));
    }
  }
}

void softmax_cross_entropy_gradient(const HostCall& k) {
  const Matrix<const float> x = k.in[0], g = k.in[1];
  // Calls write(out, factor) for a row that has a label.
  const auto write_row_of = [&](Index r, auto write) HWY_ATTR {
    const Index label = checked_label(k.indices[0], r, x.width);
    float* const out = k.out.row(r);
    if (label >= 0) {
      const float factor = *g.row(r);
      write(out, factor);
      out[label] -= factor;
    } else if (k.write == Write::overwrite) {
      std::fill_n(out, x.width, 0.0f);
    }
  };
  if (NarrowRows::fit(x)) {
    each_narrow(x, [&](NarrowRows& rows, Index first, Index count) HWY_ATTR {
      for (Index i = 0; i < count; ++i) {
        write_row_of(first + i, [&](float* out, float factor) {
          const float share = factor / rows.sums[i];
          for (Index c = 0; c < x.width; ++c) {
            const float value = rows.exps[c][i] * share;
            out[c] = k.write == Write::add ? out[c] + value : value;
          }
        });
      }
    });
  } else {
    for (Index r = 0; r < x.rows; ++r) {
      write_row_of(r, [&](float* out, float factor) HWY_ATTR {
        const ExpSum sum = exp_sum(x.row(r), x.width);
        const V shift = hn::Set(d, sum.top), share = hn::Set(d, factor / sum.sum);
        write_row<1>(k.write, out, {x.row(r)}, x.width,
                     [=](V v) HWY_ATTR { return hn::Mul(exp_of(hn::Sub(v, shift)), share); });
      });
    }
  }
}

void smoothed_cross_entropy(const HostCall& k) {
  const Matrix<const float> x = k.in[0];
  const auto epsilon = static_cast<float>(k.attributes.values[0]);
  write_scalars(k, [&](Index r) HWY_ATTR {
    const Index label = checked_label(k.indices[0], r, x.width);
    if (label < 0) return 0.0f;
    const ExpSum sum = exp_sum(x.row(r), x.width);
    const float loss = std::log(sum.sum) + (1 - epsilon) * (sum.top - x.row(r)[label]);
    if (epsilon == 0) return loss;  // 0 * inf is NaN
    const V top = hn::Set(d, sum.top);
    const auto add_below = [=](V so_far, V v) HWY_ATTR { return hn::Add(so_far, hn::Sub(top, v)); };
    const float below = sum_of(fold_row<1>({x.row(r)}, x.width, hn::Zero(d), sum.top, add_below));
    return loss + epsilon * (below / static_cast<float>(x.width));
  });
}

void smoothed_cross_entropy_gradient(const HostCall& k) {
  const Matrix<const float> x = k.in[0];
  const auto epsilon = static_cast<float>(k.attributes.values[0]);
  const V of_others = hn::Set(d, epsilon / static_cast<float>(x.width));
  for (Index r = 0; r < k.out.rows; ++r) {
    const Index label = checked_label(k.indices[0], r, x.width);
    const bool labelled = label >= 0;
    const ExpSum sum = labelled ? exp_sum(x.row(r), x.width) : ExpSum{0, 1};
    const float g = *k.in[1].row(r);
    const V shift = hn::Set(d, sum.top), share = hn::Set(d, 1 / sum.sum), factor = hn::Set(d, g);
    write_row<1>(k.write, k.out.row(r), {x.row(r)}, x.width, [=](V v) HWY_ATTR {
      if (!labelled) return hn::Zero(d);
      return hn::Mul(factor, hn::MulSub(exp_of(hn::Sub(v, shift)), share, of_others));
    });
    if (labelled) k.out.row(r)[label] -= g * (1 - epsilon);
  }
}

void log_sum_exp(const HostCall& k) {
  write_scalars(k, [x = k.in[0]](Index r) HWY_ATTR {
    if (x.width == 0) return 0.0f;
    const float top = top_of(x.row(r), x.width), shift = std::isinf(top) ? 0 : top;
    return shift + std::log(exp_sum_above(shift, x.row(r), x.width));
  });
}

/// The rounding of `result` makes exp(x - result) inexact, most of all if a large number is common to all terms. So it
/// is divided by the sum of these exponentials.
void log_sum_exp_gradient(const HostCall& k) {
  const Index n = k.out.width;
  std::vector<float> shares(static_cast<std::size_t>(n) + hn::Lanes(d));
  for (Index r = 0; r < k.out.rows; ++r) {
    const float of_row = *k.in[1].row(r), g = *k.in[2].row(r);
    const V result = hn::Set(d, of_row == -infinity ? infinity : of_row);  // the shares of a sum of 0 are 0
    float* share = shares.data();
    const auto add_share = [&](V so_far, V v) HWY_ATTR {
      const V e = exp_of(hn::Sub(v, result));
      hn::StoreU(e, d, share);
      share += hn::Lanes(d);
      return hn::Add(so_far, e);
    };
    const float sum = sum_row<1>({k.in[0].row(r)}, n, add_share, -infinity);
    const V factor = hn::Set(d, sum > 0 && sum < infinity ? g / sum : g);
    write_row<1>(k.write, k.out.row(r), {shares.data()}, n, [=](V v) HWY_ATTR { return hn::Mul(factor, v); });
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
  X(softmax_cross_entropy) X(softmax_cross_entropy_gradient)                 \
  X(smoothed_cross_entropy) X(smoothed_cross_entropy_gradient) X(log_sum_exp) X(log_sum_exp_gradient)
// clang-format on

WINDROW_HOST_KERNELS(add_host_softmax, WINDROW_KERNELS)

}  // namespace windrow
#endif  // HWY_ONCE
