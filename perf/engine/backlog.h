// Memory per waiting op.
#pragma once

#include "benchmark.h"

namespace windrow::perf {

/// Pushes `ops` ops of each pattern while the system is held back, once and in a separate process, then runs them.
/// Reports a record for each pattern and system:
///   bytes_per_op  growth of the resident memory from before the first push until after the last, divided by `ops`
///   rss_mb        that growth in 2^20 bytes
/// Systems that cannot be held back are left out. If `ops` is small, the result shows the initial memory of the system
/// rather than that of ops. Call it while the process has one thread. Throws as benchmark_engines does.
void measure_backlog(const EngineBenchmark& options, const Report& report);

}  // namespace windrow::perf
