// The machine, measured during a benchmark. See also peak.h, which the program `windrow` shares.
#pragma once

namespace windrow::perf {

/// The time in ns in which two cores pass a cache line to each other and back, as the median of several rounds. NaN if
/// this process may use only one core. On a virtual machine it changes over time by a factor of four, and the cost of
/// passing anything between threads changes with it.
double round_trip_ns();

/// The peak resident memory of this process so far, in 2^20 bytes.
double peak_rss_mb();

}  // namespace windrow::perf
