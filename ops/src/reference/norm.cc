// The reference kernels of the normalisation of rows.
#include <cmath>
#include <vector>

#include "reference/reference.h"
#include "windrow/ops/operators.h"

namespace windrow::reference {
namespace {

enum class Norm { layer, rms };

/// A row, normalised, and the factor by which its elements were multiplied.
struct Normalised {
  std::vector<double> y;
  double factor;
};

/// Averages the differences from the first element, so that the mean of equal elements is exact.
double mean_of(const double* x, Index n) {
  double above = 0;
  for (Index c = 0; c < n; ++c) above += x[c] - x[0];
  return x[0] + above / static_cast<double>(n);
}

template <Norm norm>
Normalised normalised(const Call& k, Index r) {
  const In x = k.in[0];
  const auto n = static_cast<double>(x.width);
  Normalised result{{x.row(r), x.row(r) + x.width}, 0};
  if (norm == Norm::layer) {
    const double mean = mean_of(x.row(r), x.width);
    for (double& y : result.y) y -= mean;
  }
  const double* y = result.y.data();
  result.factor = 1 / std::sqrt(dot(y, 1, y, 1, x.width) / n + k.attributes.values[0]);
  for (double& element : result.y) element *= result.factor;
  return result;
}

template <Norm norm>
void value(const Call& k) {
  each(k, [&](Index r, Index c) { return normalised<norm>(k, r).y[static_cast<std::size_t>(c)]; });
}

/// factor * (g - y * mean of y * g), with g less its mean for layer_norm.
template <Norm norm>
void gradient(const Call& k) {
  each(k, [&](Index r, Index c) {
    const Normalised of = normalised<norm>(k, r);
    const double *y = of.y.data(), *g = k.in[1].row(r);
    const auto n = static_cast<double>(k.in[0].width);
    const double mean = norm == Norm::layer ? mean_of(g, k.in[0].width) : 0;
    double dot = 0;
    for (Index i = 0; i < k.in[0].width; ++i) dot += y[i] * (g[i] - mean);
    return of.factor * (g[c] - mean - y[c] * dot / n);
  });
}

}  // namespace

void add_norms(KernelTable<double>& table) {
  table.add(op::layer_norm, value<Norm::layer>);
  table.add(op::layer_norm_gradient, gradient<Norm::layer>);
  table.add(op::rms_norm, value<Norm::rms>);
  table.add(op::rms_norm_gradient, gradient<Norm::rms>);
}

}  // namespace windrow::reference
