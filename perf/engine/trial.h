// One system on one pattern: runs it, and checks that every op ran once. All measurements are built from trials.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "system.h"

namespace windrow::perf {

/// The rate of ticks(), measured against the steady clock.
struct TickRate {
  double a_ns = 0;
  std::uint32_t to_read = UINT32_MAX;  ///< ticks between two consecutive reads of the counter, at least

  /// The first call measures for 20 ms. Threads: any.
  static const TickRate& of_machine();
};

/// The value below which the given share of all values lies; NaN if there are no values. Sorts them.
template <class T>
double percentile(std::vector<T>& values, double share) {
  if (values.empty()) return __builtin_nan("");
  std::sort(values.begin(), values.end());
  const auto at = static_cast<std::size_t>(share * static_cast<double>(values.size()));
  return static_cast<double>(values[std::min(at, values.size() - 1)]);
}

/// An owner of its system. Threads: one at a time.
class Trial {
 public:
  struct Run {
    std::int64_t ops = 0;
    std::int64_t task_ns = 0;
    std::vector<std::uint32_t>* push_ticks = nullptr;  ///< as in Job, like the next one
    std::function<void()> held = {};
  };

  /// Throws what make_system throws. The pattern must outlive the trial.
  Trial(std::string system, const Pattern& pattern, const SystemOptions& options);

  /// Pauses first, so that threads of the previous system fall asleep. Throws Error if an op was lost or ran twice.
  Times run(const Run& run);

  const std::string& system() const { return name_; }
  const Pattern& pattern() const { return pattern_; }

 private:
  void check(const std::vector<Counter>& counters, std::int64_t ops) const;

  const std::string name_;
  const Pattern& pattern_;
  const std::unique_ptr<System> system_;
};

}  // namespace windrow::perf
