// How soon an op begins that nobody waits for.
#pragma once

#include "benchmark.h"

namespace windrow::perf {

/// Of Windrow alone: ops are pushed one by one, with gaps in which workers look around, fall asleep, or have long
/// slept. A record for each gap:
///   gap_us                         between one op's begin and the next push
///   start_p50, start_p99, start_max  ns from before the push until the op's function runs
/// Looks at `workers` alone. Threads: the caller keeps a core busy while it looks for the op's begin.
void measure_start(const EngineBenchmark& options, const Report& report);

}  // namespace windrow::perf
