// What an op costs: task systems on patterns of dependency, in turn, in one process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report.h"

namespace windrow::perf {

struct EngineBenchmark {
  std::vector<std::string> patterns, systems;
  int workers = 2;
  std::int64_t ops = 100'000;  ///< of each repetition
  int repetitions = 20;
  std::int64_t task_ns = 0;  ///< how long each op takes by itself
};

/// A record for each pattern and system: nanoseconds an op from the first push until all are done (median, 5th and 95th
/// percentile of the repetitions), and a push alone. The systems take turns, repetition by repetition. Throws Error if
/// an op was lost or ran twice, MisuseError for a name that is unknown or not in this build.
std::vector<Record> benchmark_engines(const EngineBenchmark& options);

}  // namespace windrow::perf
