// The reference kernels of softmax, losses and dropout.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "reference/reference.h"
#include "windrow/ops/internal/philox.h"
#include "windrow/ops/operators.h"

namespace windrow::reference {
namespace {

/// The logarithm of the sum of exp(x) over a row, kept as two terms: in `top + log`, a large `top` would round `log`
/// away. `log` is NaN where `top` is not finite.
struct LogSum {
  double top, log;
  double below(double x) const { return x - top - log; }  ///< log(softmax(x))
};
LogSum log_sum_of(const double* x, Index n) {
  double top = x[0], sum = 0;
  for (Index c = 1; c < n; ++c) top = exceeds(x[c], top) ? x[c] : top;
  for (Index c = 0; c < n; ++c) sum += std::exp(x[c] - top);
  return {top, std::log(sum)};
}

double log_sum_exp(const double* x, Index n) {
  if (n == 0) return 0;
  const LogSum sum = log_sum_of(x, n);
  return std::isinf(sum.top) ? sum.top : sum.top + sum.log;
}

/// The first NaN, or otherwise the first of the largest elements of a row other than that of the label; -1 if there is
/// none.
Index rival(const double* x, Index n, Index label) {
  Index top = -1;
  for (Index c = 0; c < n; ++c) {
    if (c != label && (top < 0 || exceeds(x[c], x[top]))) top = c;
  }
  return top;
}

/// out(r, c) += value(r, c, label) for each element of the rows that have a label, 0 for others.
template <class Value>
void each_labelled(const Call& k, Value value) {
  each(k, [&](Index r, Index c) {
    const Index label = checked_label(k.indices[0], r, k.in[0].width);
    return label < 0 ? 0.0 : value(r, c, label);
  });
}

void cross_entropy(const Call& k, double epsilon) {
  const Index n = k.in[0].width;
  each_labelled(k, [&](Index r, Index, Index label) {
    const double* x = k.in[0].row(r);
    const LogSum sum = log_sum_of(x, n);
    double all = 0;
    for (Index c = 0; epsilon > 0 && c < n; ++c) all += sum.below(x[c]);
    return -(1 - epsilon) * sum.below(x[label]) - epsilon * all / static_cast<double>(n);
  });
}

void cross_entropy_gradient(const Call& k, double epsilon) {
  const Index n = k.in[0].width;
  each_labelled(k, [&](Index r, Index c, Index label) {
    const double *x = k.in[0].row(r), g = k.in[1].row(r)[0];
    const double of_all = g * (std::exp(log_sum_of(x, n).below(x[c])) - epsilon / static_cast<double>(n));
    return c == label ? of_all - g * (1 - epsilon) : of_all;
  });
}

void add_labelled(KernelTable<double>& table) {
  table.add(op::softmax_cross_entropy, [](const Call& k) { cross_entropy(k, 0); });
  table.add(op::softmax_cross_entropy_gradient, [](const Call& k) { cross_entropy_gradient(k, 0); });
  table.add(op::smoothed_cross_entropy, [](const Call& k) { cross_entropy(k, k.attributes.values[0]); });
  table.add(op::smoothed_cross_entropy_gradient,
            [](const Call& k) { cross_entropy_gradient(k, k.attributes.values[0]); });
  table.add(op::hinge, [](const Call& k) {
    each_labelled(k, [&](Index r, Index, Index label) {
      const double* x = k.in[0].row(r);
      const Index other = rival(x, k.in[0].width, label);
      return other < 0 ? 0.0 : std::max(k.attributes.values[0] + x[other] - x[label], 0.0);  // NaN stays NaN
    });
  });
  table.add(op::hinge_gradient, [](const Call& k) {
    each_labelled(k, [&](Index r, Index c, Index label) {
      const double *x = k.in[0].row(r), g = k.in[1].row(r)[0];
      const Index other = rival(x, k.in[0].width, label);
      if (other < 0 || k.attributes.values[0] + x[other] - x[label] <= 0) return 0.0;
      return c == label ? -g : c == other ? g : 0.0;
    });
  });
}

}  // namespace

void add_losses(KernelTable<double>& table) {
  table.add(op::softmax, [](const Call& k) {
    each(k, [&](Index r, Index c) {
      const double* x = k.in[0].row(r);
      return std::exp(log_sum_of(x, k.in[0].width).below(x[c]));
    });
  });
  table.add(op::softmax_gradient, [](const Call& k) {
    each(k, [&](Index r, Index c) {
      const double *y = k.in[0].row(r), *g = k.in[1].row(r);
      return y[c] * (g[c] - dot(y, 1, g, 1, k.in[0].width));
    });
  });
  table.add(op::log_softmax, [](const Call& k) {
    each(k, [&](Index r, Index c) { return log_sum_of(k.in[0].row(r), k.in[0].width).below(k.in[0].row(r)[c]); });
  });
  table.add(op::log_softmax_gradient, [](const Call& k) {
    each(k, [&](Index r, Index c) {
      const double *y = k.in[0].row(r), *g = k.in[1].row(r);
      return g[c] - std::exp(y[c]) * std::accumulate(g, g + k.in[1].width, 0.0);
    });
  });
  table.add(op::squared_distance, [](const Call& k) {
    each(k, [&](Index r, Index) {
      const double *x = k.in[0].row(r), *y = k.in[1].row(r);
      return sum(0, k.in[0].width, [&](Index c) { return (x[c] - y[c]) * (x[c] - y[c]); });
    });
  });
  table.add(op::squared_distance_gradient, [](const Call& k) {
    each(k, [&](Index r, Index c) { return 2 * (k.in[0].row(r)[c] - k.in[1].row(r)[c]) * k.in[2].row(r)[0]; });
  });
  table.add(op::binary_cross_entropy, [](const Call& k) {
    each(k, [&](Index r, Index c) {
      const double x = k.in[0].row(r)[c], target = checked_target(k.in[1], r, c);
      return target * softplus(-x) + (1 - target) * softplus(x);
    });
  });
  add_labelled(table);
  table.add(op::log_sum_exp,
            [](const Call& k) { each(k, [&](Index r, Index) { return log_sum_exp(k.in[0].row(r), k.in[0].width); }); });
  table.add(op::log_sum_exp_gradient, [](const Call& k) {
    each(k, [&](Index r, Index c) {
      const double *x = k.in[0].row(r), result = k.in[1].row(r)[0], g = k.in[2].row(r)[0];
      double sum = 0;
      for (Index i = 0; i < k.in[0].width; ++i) sum += share_of(x[i], result);
      return g * share_of(x[c], result) / whole_of(sum);
    });
  });
  table.add(op::dropout, [](const Call& k) {
    const double rate = k.attributes.values[0];
    const Index seed = k.attributes.sizes[0], site = k.attributes.sizes[1];
    const bool has_seeds = k.indices[0].width == 5;
    const PhiloxKey key_of_all = philox_key(static_cast<std::uint64_t>(seed));
    each(k, [&](Index r, Index c) {
      PhiloxCounter counter = {static_cast<std::uint32_t>(site * 65536 + c / 4)};
      for (std::size_t i = 0; i < 3; ++i) counter[i + 1] = static_cast<std::uint32_t>(k.indices[0].row(r)[i]);
      const auto half = [&](int i) { return static_cast<std::uint32_t>(k.indices[0].row(r)[3 + i]); };
      const PhiloxKey key = has_seeds ? PhiloxKey{half(0), half(1)} : key_of_all;
      const bool dropped = unit_uniform(philox(counter, key)[static_cast<std::size_t>(c % 4)]) < rate;
      return dropped ? 0.0 : k.in[0].row(r)[c] / (1 - rate);
    });
  });
}

}  // namespace windrow::reference
