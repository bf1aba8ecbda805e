// The smallest ops that are worth their system.
#pragma once

#include "benchmark.h"

namespace windrow::perf {

/// METG(50 %) of Task Bench (Slaughter et al., SC 2020): the smallest task length from which on half of the peak
/// efficiency is kept, where efficiency is ops * length / workers as share of the time from the first push until all
/// ops are done, and its peak the best that any of the systems reaches in the sweep. Lengths go from 50 ns to 0.2 ms,
/// the systems taking turns at each. A record for each pattern and system, on pattern D if none is named:
///   metg_ns                by straight lines over the logarithm of the length; null if half is not kept at the longest
///   shortest_efficiency    at 50 ns; where it is above half of the peak, metg_ns is null too
///   longest_efficiency     at the other end
///   peak_efficiency        of all systems
/// All are medians of the repetitions. `ops` is the most of a repetition; with longer tasks fewer are run. `task_ns` is
/// not looked at. Throws as benchmark_engines does.
void find_metg(const EngineBenchmark& options, const Report& report);

/// A point of the sweep.
struct Efficiency {
  double length_ns = 0, share = 0;
};

/// The length from which on the share stays at `enough` or above, between the two points around it; not a number if the
/// last point is below, or none. Lengths rise.
double metg_of(const std::vector<Efficiency>& curve, double enough);

}  // namespace windrow::perf
