// The cost per op: task systems run dependency patterns in turn, in one process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "report.h"
#include "system.h"

namespace windrow::perf {

struct EngineBenchmark {
  /// If empty, each measurement uses its own default patterns.
  std::vector<std::string> patterns;
  std::vector<std::string> systems;
  /// Whether to leave out systems that cannot run a pattern. If false, such a system is an error.
  bool leave_out = true;
  int workers = 2;
  int width = 64;              ///< of the stencil in patterns D and FD
  std::int64_t ops = 100'000;  ///< per repetition
  int repetitions = 20;
  std::int64_t task_ns = 0;  ///< duration of each op
  std::int64_t burst = 0;    ///< number of pushes between two gaps; 0: no gaps
};

/// A pattern and the systems that are compared on it. A value.
struct Contest {
  Pattern pattern;
  std::vector<std::string> systems;
};

/// The patterns are those of the options, or `meant` if the options name none. Throws MisuseError for a name that is
/// unknown or not in this build, and for a pattern that a system cannot run, unless such systems are left out.
std::vector<Contest> contests_of(const EngineBenchmark& options, const std::vector<std::string>& meant);

/// Called with each record as soon as it is complete.
using Report = std::function<void(const Record&)>;

/// The first fields of every record.
Record record_of(const EngineBenchmark& options, const Pattern& pattern, const std::string& system);

/// Reports a record for each pattern and system. The systems run in turn in each repetition:
///   ns_per_op           time per op, from the first push until all ops have finished, including gaps between bursts;
///                       median of the repetitions; p05 and p95 are percentiles
///   push_ns             the part of that time until the last push returned, without gaps
///   push_p50, push_p999 percentiles of single pushes, from separate repetitions, without the cost of the timer
///   efficiency          ops * task_ns / workers as a share of the measured time, if task_ns is above 0
///   rss_mb              growth of the resident memory of a process that runs only this system, from before the system
///                       is created to the peak of one repetition, in 2^20 bytes
///   round_trip_ns       median of round_trip_ns() (machine.h), measured before each repetition; the other times depend
///                       on it
/// The push fields are null for a system that does not push single ops. Call it while the process has one thread.
/// Throws Error if an op was lost or ran twice, and everything that contests_of throws.
void benchmark_engines(const EngineBenchmark& options, const Report& report);

}  // namespace windrow::perf
