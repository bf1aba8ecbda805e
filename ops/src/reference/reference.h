// Functions that the reference kernels share, and the families of kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "checks.h"
#include "windrow/ops/kernel.h"

namespace windrow::reference {

using Call = KernelCall<double>;
using In = Matrix<const double>;
using Out = Matrix<double>;

inline void zero_unless_adding(const Call& call) {
  if (call.write == Write::add) return;
  for (Index r = 0; r < call.out.rows; ++r) std::fill_n(call.out.row(r), call.out.width, 0.0);
}

/// out(r, c) += value(r, c) for each element. The value is computed before the result changes, which may be an operand.
template <class Value>
void each(const Call& call, Value value) {
  for (Index r = 0; r < call.out.rows; ++r) {
    for (Index c = 0; c < call.out.width; ++c) {
      const double v = value(r, c);
      double& to = call.out.row(r)[c];
      to = call.write == Write::add ? to + v : v;
    }
  }
}

/// The sum of term(i) for i in [first, last).
template <class Term>
double sum(Index first, Index last, Term term) {
  double sum = 0;
  for (Index i = first; i < last; ++i) sum += term(i);
  return sum;
}

/// The sum of x[i * x_step] * y[i * y_step].
inline double dot(const double* x, Index x_step, const double* y, Index y_step, Index n) {
  return sum(0, n, [&](Index i) { return x[i * x_step] * y[i * y_step]; });
}

/// True if `value` takes the place of `top` as the maximum: the first NaN wins, otherwise the first of the largest.
inline bool exceeds(double value, double top) { return !std::isnan(top) && !(value <= top); }

/// The share of a term in a sum of exponentials whose logarithm is `result`; 0 if the sum is 0.
inline double share_of(double term, double result) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  return std::exp(term - (result == -inf ? inf : result));
}

/// The divisor of shares so that they add up to 1 although `result` was rounded. Shares of infinite terms are kept.
inline double whole_of(double sum_of_shares) {
  return sum_of_shares > 0 && std::isfinite(sum_of_shares) ? sum_of_shares : 1;
}

/// log(1 + exp(x)).
inline double softplus(double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }

void add_rows(KernelTable<double>& table);
void add_images(KernelTable<double>& table);
void add_losses(KernelTable<double>& table);
void add_norms(KernelTable<double>& table);
void add_semirings(KernelTable<double>& table);
void add_top_choices(KernelTable<double>& table);
void add_training_steps(KernelTable<double>& table);

}  // namespace windrow::reference
