#include "batching/interleaved_runs.h"

#include <algorithm>
#include <cmath>

namespace windrow::perf {

double median_of(std::vector<double> values) {
  if (values.empty()) return NAN;
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

std::size_t InterleavedRuns::add(Variant variant) {
  variants_.push_back(std::move(variant));
  figures_.emplace_back();
  return variants_.size() - 1;
}

void InterleavedRuns::run(int repetitions) {
  for (const Variant& variant : variants_) variant();
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    for (std::size_t i = 0; i < variants_.size(); ++i) {
      const std::size_t next = (i + static_cast<std::size_t>(repetition)) % variants_.size();
      figures_[next].push_back(variants_[next]());
    }
  }
}

double InterleavedRuns::ratio(std::size_t variant, std::size_t base) const {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < figures_[variant].size(); ++i) {
    ratios.push_back(figures_[variant][i] / figures_[base][i]);
  }
  return median_of(ratios);
}

}  // namespace windrow::perf
