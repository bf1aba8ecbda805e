// Variants that are compared run in turn, because the speed of a machine changes by more than the differences between
// them.
#pragma once

#include <functional>
#include <vector>

namespace windrow::perf {

double median_of(std::vector<double> values);

/// A set of variants. A run of a variant returns a value, such as its throughput.
class InterleavedRuns {
 public:
  using Variant = std::function<double()>;

  /// Returns its number.
  std::size_t add(Variant variant);
  /// Runs each variant once to warm up memory, plans and caches. Then runs all of them `repetitions` times, each time
  /// starting with another variant.
  void run(int repetitions);

  double median(std::size_t variant) const { return median_of(figures_[variant]); }
  /// The median ratio of `variant` to `base` in the same repetition.
  double ratio(std::size_t variant, std::size_t base) const;

 private:
  std::vector<Variant> variants_;
  std::vector<std::vector<double>> figures_;  // for each variant, by repetition
};

}  // namespace windrow::perf
