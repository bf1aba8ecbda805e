// What an op costs: task systems on patterns of dependency, in turn, in one process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "report.h"
#include "system.h"

namespace windrow::perf {

struct EngineBenchmark {
  /// None for those that the measurement is meant for.
  std::vector<std::string> patterns;
  std::vector<std::string> systems;
  /// Whether systems are left out where they do not take a pattern, or that is an error.
  bool leave_out = true;
  int workers = 2;
  int width = 64;              ///< of the stencil, patterns D and FD
  std::int64_t ops = 100'000;  ///< of each repetition
  int repetitions = 20;
  std::int64_t task_ns = 0;  ///< how long each op takes by itself
  std::int64_t burst = 0;    ///< so many pushes come one after the other, then a gap; 0 for all
};

/// A pattern, and the systems that stand beside each other on it. A value.
struct Contest {
  Pattern pattern;
  std::vector<std::string> systems;
};

/// `meant` are the patterns if the options name none. Throws MisuseError for a name that is unknown or not in this
/// build, and for a pattern that a system does not take, if none is to be left out.
std::vector<Contest> contests_of(const EngineBenchmark& options, const std::vector<std::string>& meant);

/// Is given each record as soon as it is there.
using Report = std::function<void(const Record&)>;

/// What the records of all measurements begin with.
Record record_of(const EngineBenchmark& options, const Pattern& pattern, const std::string& system);

/// A record for each pattern and system, the systems taking turns, repetition by repetition:
///   ns_per_op           from the first push until all ops are done, gaps between bursts included; median, p05 and p95
///                       of the repetitions
///   push_ns             the part of it until the last push returned, less gaps
///   push_p50, push_p999 of single pushes, in repetitions of their own, less what reading the counter takes
///   efficiency          ops * task_ns / workers, as share of what it took; with task_ns above 0
///   rss_mb              by how much the resident memory of a process that did nothing else grew, from before the
///                       system was made to its peak in one repetition, in 2^20 bytes
///   round_trip_ns       of the machine between the repetitions (machine.h): figures go with it; median
/// Of a system that pushes no single ops, the figures of pushes are null. Call it while the process has one thread.
/// Throws Error if an op was lost or ran twice, and what contests_of throws.
void benchmark_engines(const EngineBenchmark& options, const Report& report);

}  // namespace windrow::perf
