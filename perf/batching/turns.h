// What is compared takes turns: machines are faster at one moment than at the next, by more than what is compared.
#pragma once

#include <functional>
#include <vector>

namespace windrow::perf {

double median_of(std::vector<double> values);

/// Variants, each of which gives a figure, such as units a second, whenever it is run.
class Turns {
 public:
  using Variant = std::function<double()>;

  /// Its number.
  std::size_t add(Variant variant);
  /// Runs each once unmeasured, for memory, plans and caches; then all, so many times, beginning with another one each
  /// time.
  void take(int repetitions);

  double median(std::size_t variant) const { return median_of(figures_[variant]); }
  /// The median of what `variant` is as a multiple of `base` in the same repetition.
  double ratio(std::size_t variant, std::size_t base) const;

 private:
  std::vector<Variant> variants_;
  std::vector<std::vector<double>> figures_;  // of each variant, by repetition
};

}  // namespace windrow::perf
