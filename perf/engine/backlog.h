// What an op that waits takes of memory.
#pragma once

#include "benchmark.h"

namespace windrow::perf {

/// `ops` of each pattern are pushed while the system is held back, once and in a process of its own, and then run. A
/// record for each pattern and system:
///   bytes_per_op  growth of the resident memory from before the first push until all were pushed, over their number
///   rss_mb        all of that growth, in 2^20 bytes
/// Systems that cannot be held back are left out. Small numbers of ops show the system's first memory and not an op's.
/// Call it while the process has one thread. Throws as benchmark_engines does.
void measure_backlog(const EngineBenchmark& options, const Report& report);

}  // namespace windrow::perf
