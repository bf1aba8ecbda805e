// Host kernels of products in the log and max-plus semirings, by Highway.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/semiring.cc"
#include "hwy/foreach_target.h"
// foreach_target.h comes first.
#include <cmath>
#include <vector>

#include "host/simd.h"
#include "windrow/ops/operators.h"

HWY_BEFORE_NAMESPACE();
namespace windrow {
namespace HWY_NAMESPACE {

/// A copy of a matrix with rows of whole vectors. It pays because each row is read once for each row of a batch. The
/// columns beyond the width hold `pad`.
class Padded {
 public:
  Padded(Index rows, Index width, float pad)
      : columns_((width + static_cast<Index>(hn::Lanes(d)) - 1) / static_cast<Index>(hn::Lanes(d)) *
                 static_cast<Index>(hn::Lanes(d))),
        stride_(row_stride(columns_)),
        elements_(static_cast<std::size_t>(rows * stride_), pad) {}
  explicit Padded(const Matrix<const float>& from, float pad = 0) : Padded(from.rows, from.width, pad) {
    for (Index r = 0; r < from.rows; ++r) take(r, from.row(r), from.width);
  }
  void take(Index r, const float* from, Index width) { std::copy_n(from, width, row(r)); }
  /// The number of columns, padded to whole vectors.
  Index columns() const { return columns_; }
  Index stride() const { return stride_; }
  float* row(Index r) { return elements_.data() + r * stride_; }
  const float* row(Index r) const { return elements_.data() + r * stride_; }

 private:
  const Index columns_, stride_;
  std::vector<float> elements_;
};

/// Writes f(x, load) to each vector of each row of the result: x is the row of the first operand, and load(i) are the
/// columns of row i of the second one.
template <class F>
HWY_INLINE void each_product(const HostCall& k, F f) {
  const Padded weights(k.in[1]);
  Padded row(1, k.out.width, 0);
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  for (Index r = 0; r < k.out.rows; ++r) {
    const float* const x = k.in[0].row(r);
    for (Index c = 0; c < row.columns(); c += lanes) {
      const auto load = [&](Index i) HWY_ATTR { return hn::LoadU(d, weights.row(i) + c); };
      hn::StoreU(f(x, load), d, row.row(0) + c);
    }
    write_row<1>(k.write, k.out.row(r), {row.row(0)}, k.out.width, [](V v) HWY_ATTR { return v; });
  }
}

/// The sum of `count` vectors. add(sum, first, last) adds those of [first, last) to `sum`, in order.
template <class Add>
HWY_INLINE V sum_terms(Index count, Add add) {
  if (count <= rows_of_block) return add(hn::Zero(d), 0, count);
  HWY_ALIGN float sums[HWY_MAX_BYTES / sizeof(float)] = {};
  add_blocks(sums, static_cast<Index>(hn::Lanes(d)), count,
             [&](Index first, Index last, Index, float* part, Index)
                 HWY_ATTR { hn::StoreU(add(hn::LoadU(d, part), first, last), d, part); });
  return hn::Load(d, sums);
}

// The largest term is subtracted for each element of the result, so other terms may be smaller by any factor.
void log_matmul(const HostCall& k) {
  const Index inner = k.in[0].width;
  each_product(k, [&](const float* x, auto load) HWY_ATTR {
    V top = hn::Set(d, -infinity);
    for (Index i = 0; i < inner; ++i) top = hn::Max(top, hn::Add(hn::Set(d, x[i]), load(i)));
    const V shift = hn::IfThenZeroElse(hn::IsInf(top), top);  // of a sum that is 0 or infinite
    const V sum = sum_terms(inner, [&](V so_far, Index first, Index last) HWY_ATTR {
      for (Index i = first; i < last; ++i) {
        so_far = hn::Add(so_far, exp_of(hn::Sub(hn::Add(hn::Set(d, x[i]), load(i)), shift)));
      }
      return so_far;
    });
    return hn::Add(shift, log_of(sum));
  });
}

/// The shares that terms have of the results of a row, times the gradients: exp(x + weight - result) * gradient. The
/// rounding of `result` makes the exponentials inexact, so they are divided by their sum.
class Shares {
 public:
  // Padded so that shares are 0 beyond the width.
  explicit Shares(const HostCall& k)
      : k_(k),
        weights_(k.in[1]),
        result_(1, k.in[1].width, infinity),
        gradient_(1, k.in[1].width, 0),
        terms_(k.in[1].rows, static_cast<Index>(hn::Lanes(d)), 0) {}

  Index columns() const { return weights_.columns(); }

  void take_row(Index r) {
    x_ = k_.in[0].row(r);
    result_.take(0, k_.in[2].row(r), k_.in[2].width);
    std::replace(result_.row(0), result_.row(0) + k_.in[2].width, -infinity, infinity);  // a sum of 0: all shares are 0
    gradient_.take(0, k_.in[3].row(r), k_.in[3].width);
  }

  /// Calls visit(i, share) for each term i: its shares at columns [c, c + lanes) of the row.
  template <class Visit>
  HWY_INLINE void each(Index c, Visit visit) {
    const Index inner = k_.in[1].rows;
    const V result = hn::LoadU(d, result_.row(0) + c);
    const V sum = sum_terms(inner, [&](V so_far, Index first, Index last) HWY_ATTR {
      for (Index i = first; i < last; ++i) {
        const V term = exp_of(hn::Sub(hn::Add(hn::Set(d, x_[i]), hn::LoadU(d, weights_.row(i) + c)), result));
        hn::StoreU(term, d, terms_.row(i));
        so_far = hn::Add(so_far, term);
      }
      return so_far;
    });
    const auto divides = hn::And(hn::Gt(sum, hn::Zero(d)), hn::Lt(sum, hn::Set(d, infinity)));
    const V factor = hn::Div(hn::LoadU(d, gradient_.row(0) + c), hn::IfThenElse(divides, sum, hn::Set(d, 1)));
    for (Index i = 0; i < inner; ++i) visit(i, hn::Mul(hn::LoadU(d, terms_.row(i)), factor));
  }

 private:
  const HostCall& k_;
  const Padded weights_;
  Padded result_, gradient_, terms_;
  const float* x_ = nullptr;  // the row
};

void log_matmul_gradient(const HostCall& k) {
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  Shares shares(k);
  Padded part(k.out.width, lanes, 0);
  std::vector<double> sums(static_cast<std::size_t>(k.out.width));  // of the sums of blocks of columns: row_sums.h
  for (Index r = 0; r < k.out.rows; ++r) {
    shares.take_row(r);
    std::ranges::fill(sums, 0.0);
    for (Index begin = 0; begin < shares.columns(); begin += rows_of_block * lanes) {
      std::fill_n(part.row(0), k.out.width * lanes, 0.0f);
      for (Index c = begin; c < std::min(begin + rows_of_block * lanes, shares.columns()); c += lanes) {
        shares.each(c, [&](Index i, V share)
                           HWY_ATTR { hn::StoreU(hn::Add(hn::LoadU(d, part.row(i)), share), d, part.row(i)); });
      }
      for (Index i = 0; i < k.out.width; ++i) {
        sums[static_cast<std::size_t>(i)] += static_cast<double>(sum_of(hn::LoadU(d, part.row(i))));
      }
    }
    for (Index i = 0; i < k.out.width; ++i) {
      float& to = k.out.row(r)[i];
      to = static_cast<float>(sums[static_cast<std::size_t>(i)]) + (k.write == Write::add ? to : 0);
    }
  }
}

void log_matmul_weight_gradient(const HostCall& k) {
  zero_unless_adding(k);
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  Shares shares(k);
  Padded sums(k.out);
  MatrixSum of_rows({sums.row(0), k.out.rows, sums.stride(), sums.stride()}, k.in[0].rows);
  for (Index r = 0; r < k.in[0].rows; ++r) {
    shares.take_row(r);
    const Matrix<float> to = of_rows.next();
    for (Index c = 0; c < shares.columns(); c += lanes) {
      shares.each(c, [&](Index i, V share)
                         HWY_ATTR { hn::StoreU(hn::Add(hn::LoadU(d, to.row(i) + c), share), d, to.row(i) + c); });
    }
  }
  of_rows.finish();
  for (Index i = 0; i < k.out.rows; ++i) std::copy_n(sums.row(i), k.out.width, k.out.row(i));
}

/// The largest term.
template <class Load>
HWY_INLINE Top best_of(const float* x, Index inner, Load load) {
  return top_of(0, inner, [&](Index i) HWY_ATTR { return hn::Add(hn::Set(d, x[i]), load(i)); });
}

void max_matmul(const HostCall& k) {
  each_product(k,
               [inner = k.in[0].width](const float* x, auto load) HWY_ATTR { return best_of(x, inner, load).value; });
}

/// Calls visit(r, i, c) for each element (r, c) of the product, in order; i is the first term that has the maximum.
template <class Visit>
HWY_INLINE void each_best(const HostCall& k, Visit visit) {
  const Padded weights(k.in[1]);
  Padded places(1, weights.columns(), 0);
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  for (Index r = 0; r < k.in[0].rows; ++r) {
    for (Index c = 0; c < weights.columns(); c += lanes) {
      const auto load = [&](Index i) HWY_ATTR { return hn::LoadU(d, weights.row(i) + c); };
      hn::StoreU(best_of(k.in[0].row(r), k.in[0].width, load).place, d, places.row(0) + c);
    }
    for (Index c = 0; c < k.in[1].width; ++c) visit(r, static_cast<Index>(places.row(0)[c]), c);
  }
}

void max_matmul_gradient(const HostCall& k) {
  zero_unless_adding(k);
  std::vector<double> sums(static_cast<std::size_t>(k.out.width));
  each_best(k, [&](Index r, Index i, Index c) {
    if (c == 0) std::copy_n(k.out.row(r), k.out.width, sums.begin());
    sums[static_cast<std::size_t>(i)] += static_cast<double>(k.in[2].row(r)[c]);
    if (c + 1 == k.in[1].width) std::ranges::copy(sums, k.out.row(r));
  });
}

void max_matmul_weight_gradient(const HostCall& k) {
  zero_unless_adding(k);
  MatrixSum sum(k.out, k.in[0].rows);
  Matrix<float> to = k.out;
  each_best(k, [&](Index r, Index i, Index c) {
    if (c == 0) to = sum.next();
    to.row(i)[c] += k.in[2].row(r)[c];
  });
  sum.finish();
}

void argmax_matmul(const HostCall& k) {
  each_product(k,
               [inner = k.in[0].width](const float* x, auto load) HWY_ATTR { return best_of(x, inner, load).place; });
}

}  // namespace HWY_NAMESPACE
}  // namespace windrow
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace windrow {

// The kernels, each named like its operator.
// clang-format off
#define WINDROW_KERNELS(X) \
  X(log_matmul) X(log_matmul_gradient) X(log_matmul_weight_gradient) X(max_matmul) X(max_matmul_gradient) \
  X(max_matmul_weight_gradient) X(argmax_matmul)
// clang-format on

WINDROW_HOST_KERNELS(add_host_semirings, WINDROW_KERNELS)

}  // namespace windrow
#endif  // HWY_ONCE
