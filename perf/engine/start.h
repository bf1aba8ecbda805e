// The delay from push to start of an op that nothing waits for.
#pragma once

#include "benchmark.h"

namespace windrow::perf {

/// Windrow only. Pushes ops one by one, with gaps in which workers search for ops, fall asleep, or sleep deeply.
/// Reports a record for each gap:
///   gap_us                           time from the start of an op to the next push
///   start_p50, start_p99, start_max  time in ns from before the push until the op's function runs
/// Of the options, only `workers` is used. Threads: the caller keeps a core busy while it polls for the start of the
/// op.
void measure_start(const EngineBenchmark& options, const Report& report);

}  // namespace windrow::perf
