// The shortest ops that a system runs efficiently.
#pragma once

#include "benchmark.h"

namespace windrow::perf {

/// METG(50 %) of Task Bench (Slaughter et al., SC 2020): the shortest task length above which the efficiency stays at
/// or above half of the peak. Efficiency is ops * length / workers as a share of the time from the first push until all
/// ops have finished. The peak is the best efficiency of any system in the sweep. Lengths go from 50 ns to 0.2 ms; the
/// systems run in turn at each length. Reports a record for each pattern and system, on pattern D if none is named:
///   metg_ns                interpolated linearly over the logarithm of the length; null if the longest task is below
///                          half of the peak
///   shortest_efficiency    at 50 ns; if it is above half of the peak, metg_ns is null too
///   longest_efficiency     at 0.2 ms
///   peak_efficiency        of all systems
/// All values are medians of the repetitions. A repetition has at most `ops` ops, and fewer for long tasks. `task_ns`
/// is ignored. Throws as benchmark_engines does.
void find_metg(const EngineBenchmark& options, const Report& report);

/// A point of the sweep.
struct Efficiency {
  double length_ns = 0, share = 0;
};

/// The length above which the share stays at or above `enough`, interpolated between two points. NaN if the last point
/// is below `enough`, or if no point is. Lengths must ascend.
double metg_of(const std::vector<Efficiency>& curve, double enough);

}  // namespace windrow::perf
