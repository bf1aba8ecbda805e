// Task systems run dependency patterns in turn, in one process: the cost per op, the shortest ops that they run
// efficiently, the delay from push to start, and the memory per waiting op.
#pragma once

#include <cstdint>
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
};

/// A pattern and the systems that are compared on it. A value.
struct Contest {
  Pattern pattern;
  std::vector<std::string> systems;
};

/// The patterns are those of the options, or `meant` if the options name none. Throws MisuseError for a name that is
/// unknown or not in this build, and for a pattern that a system cannot run, unless such systems are left out.
std::vector<Contest> contests_of(const EngineBenchmark& options, const std::vector<std::string>& meant);

/// The first fields of every record.
Record record_of(const EngineBenchmark& options, const Pattern& pattern, const std::string& system);

/// Reports a record for each pattern and system. The systems run in turn in each repetition:
///   ns_per_op           time per op, from the first push until all ops have finished; median of the repetitions; p05
///                       and p95 are percentiles
///   push_ns             the part of that time until the last push returned
///   push_p50, push_p999 percentiles of single pushes, from separate repetitions, without the cost of the timer
///   efficiency          ops * task_ns / workers as a share of the measured time, if task_ns is above 0
///   rss_mb              growth of the resident memory of a process that runs only this system, from before the system
///                       is created to the peak of one repetition, in 2^20 bytes
/// The push fields are null for a system that does not push single ops. Call it while the process has one thread.
/// Throws Error if an op was lost or ran twice, and everything that contests_of throws.
void benchmark_engines(const EngineBenchmark& options, const Report& report);

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

/// Windrow only. Pushes ops one by one, with gaps in which workers search for ops, fall asleep, or sleep deeply.
/// Reports a record for each gap:
///   gap_us                           time from the start of an op to the next push
///   start_p50, start_p99, start_max  time in ns from before the push until the op's function runs
/// Of the options, only `workers` is used. Threads: the caller keeps a core busy while it polls for the start of the
/// op.
void measure_start(const EngineBenchmark& options, const Report& report);

/// Pushes `ops` ops of each pattern while the system is held back, once and in a separate process, then runs them.
/// Reports a record for each pattern and system:
///   bytes_per_op  growth of the resident memory from before the first push until after the last, divided by `ops`
///   rss_mb        that growth in 2^20 bytes
/// Systems that cannot be held back are left out. If `ops` is small, the result shows the initial memory of the system
/// rather than that of ops. Call it while the process has one thread. Throws as benchmark_engines does.
void measure_backlog(const EngineBenchmark& options, const Report& report);

}  // namespace windrow::perf
