// A task system to be compared: pushes a pattern's tasks in order, and waits for them. Start here.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pattern.h"
#include "ticks.h"

namespace windrow::perf {

/// On a cache line of its own, so that counting costs all systems alike.
struct alignas(64) Counter {
  std::uint64_t value = 0;
};

/// What an op does: it counts, and then takes its time.
struct Work {
  Counter* counter;
  std::uint64_t ticks;

  void operator()() const {
    ++counter->value;
    if (ticks == 0) return;
    const std::uint64_t end = perf::ticks() + ticks;
    while (perf::ticks() < end) {
    }
  }
};

/// One run of a pattern.
struct Job {
  const Pattern& pattern;
  std::int64_t ops = 0;
  std::uint64_t task_ticks = 0;
  Counter* counters = nullptr;
  /// Where to note how long each push took, in ticks; null for not at all.
  std::vector<std::uint32_t>* push_ticks = nullptr;
  /// The pushes come in bursts of so many, with a gap between; 0 for one burst.
  std::int64_t burst = 0;
  static constexpr std::chrono::microseconds gap{10};
  /// If there is one: no op runs before all are pushed and this was called. For systems that hold a backlog.
  std::function<void()> held = nullptr;

  std::int64_t longest_burst() const { return burst > 0 ? burst : ops; }
  Work work(const Task& task) const { return {counters + task.counts, task_ticks}; }
};

/// Seconds from the first push until the last push returned, less the gaps, and until all ops were done. Of a system
/// that pushes no single ops, `push` is not a number.
struct Times {
  double push = 0, total = 0;
};

struct SystemOptions {
  int workers = 2;                ///< beside the thread that pushes, where the system tells them apart
  std::uint64_t pending_ops = 0;  ///< so many may be pending before a push is held back; 0 for the system's own limit
};

/// An owner of its threads. Threads: one at a time.
class System {
 public:
  virtual ~System() = default;
  virtual Times run(const Job& job) = 0;
};

/// For one pattern. Throws MisuseError for a name that is unknown or not in this build, and for a pattern that the
/// system does not take.
std::unique_ptr<System> make_system(const std::string& name, const Pattern& pattern, const SystemOptions& options);
/// Those of other builds too.
std::vector<std::string> system_names();
std::vector<std::string> built_system_names();
/// Whether it may stand beside others on that pattern: a graph that is built once stands beside replay only, and bulk
/// scopes beside pushes. Throws MisuseError as make_system does for names.
bool takes(const std::string& system, const Pattern& pattern);
/// Throws the MisuseError for a system that does not take the pattern.
[[noreturn]] void refuse(const std::string& system, const Pattern& pattern);
/// Whether it knows Job::held. Throws MisuseError as make_system does for names.
bool holds_a_backlog(const std::string& system);

/// Gives the systems of this build the environment they need: starts the program again, with the same arguments, if
/// something is missing. Call it first. Where that cannot be, the program goes on as it is.
void settle_environment(char** arguments);

/// push(number, task) for each op, finish() to wait for them; the number is that of the task in the pattern.
template <class Push, class Finish>
Times time_pushes(const Job& job, Push push, Finish finish) {
  using Clock = std::chrono::steady_clock;
  const std::vector<Task>& tasks = job.pattern.tasks;
  const auto seconds_since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  Times times;
  double gaps = 0;
  std::size_t next = 0;
  const auto begin = Clock::now();
  for (std::int64_t left = job.ops; left > 0;) {
    const std::int64_t behind = left - std::min(left, job.longest_burst());
    for (; left > behind; --left) {
      if (job.push_ticks == nullptr) {
        push(next, tasks[next]);
      } else {
        const std::uint64_t before = ticks();
        push(next, tasks[next]);
        job.push_ticks->push_back(static_cast<std::uint32_t>(ticks() - before));
      }
      if (++next == tasks.size()) next = 0;
    }
    const auto gap = Clock::now();
    while (left > 0 && Clock::now() - gap < Job::gap) {
    }
    gaps += seconds_since(gap);
  }
  times.push = seconds_since(begin) - gaps;
  if (job.held) job.held();
  finish();
  times.total = seconds_since(begin);
  return times;
}

}  // namespace windrow::perf
