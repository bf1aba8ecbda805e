// The interface of a task system that is compared: it pushes the tasks of a pattern in order and waits for them. Start
// here.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pattern.h"

namespace windrow::perf {

/// Reads the time stamp counter on x86-64, the steady clock elsewhere. The rate must be measured (TickRate).
inline std::uint64_t ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

/// A counter on a cache line of its own, so that counting costs the same in all systems.
struct alignas(64) Counter {
  std::uint64_t value = 0;
};

/// The body of an op: increments its counter, then spins for the duration of the task.
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
  /// Receives the duration of each push in ticks; null: pushes are not timed.
  std::vector<std::uint32_t>* push_ticks = nullptr;
  /// If set, no op runs until all are pushed and this function has been called. Only for systems that can hold a
  /// backlog.
  std::function<void()> held = nullptr;

  Work work(const Task& task) const { return {counters + task.counts, task_ticks}; }
};

/// Times in seconds. `push`: from the first push until the last push returned; NaN for a system that does not push
/// single ops. `total`: from the first push until all ops have finished.
struct Times {
  double push = 0, total = 0;
};

struct SystemOptions {
  int workers = 2;                ///< in addition to the pushing thread, if the system distinguishes them
  std::uint64_t pending_ops = 0;  ///< back-pressure limit on pending ops; 0: the system's own limit
};

/// A task system. An owner of its threads. Threads: one at a time.
class System {
 public:
  virtual ~System() = default;
  virtual Times run(const Job& job) = 0;
};

/// Creates a system that runs one pattern. Throws MisuseError for a name that is unknown or not in this build, and for
/// a pattern that the system cannot run.
std::unique_ptr<System> make_system(const std::string& name, const Pattern& pattern, const SystemOptions& options);
/// The names of all systems, including those that are not in this build.
std::vector<std::string> system_names();
std::vector<std::string> built_system_names();
/// Whether the system may be compared with others on that pattern. Systems that build a graph once run replayed
/// patterns only, and some run pushed patterns only. Throws MisuseError as make_system does for names.
bool takes(const std::string& system, const Pattern& pattern);
/// Throws the MisuseError for a system that cannot run the pattern.
[[noreturn]] void refuse(const std::string& system, const Pattern& pattern);
/// Whether the system supports Job::held. Throws MisuseError as make_system does for names.
bool holds_a_backlog(const std::string& system);

/// Sets the environment variables that the systems of this build need. If one is missing, restarts the program with the
/// same arguments. If that fails, the program continues with the environment it has. Call it first in main().
void settle_environment(char** arguments);

/// Runs and times a job: calls push(number, task) for each op, where `number` is the index of the task in the pattern,
/// and then finish(), which waits for all ops.
template <class Push, class Finish>
Times time_pushes(const Job& job, Push push, Finish finish) {
  using Clock = std::chrono::steady_clock;
  const std::vector<Task>& tasks = job.pattern.tasks;
  const auto seconds_since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  Times times;
  std::size_t next = 0;
  const auto begin = Clock::now();
  for (std::int64_t left = job.ops; left > 0; --left) {
    if (job.push_ticks == nullptr) {
      push(next, tasks[next]);
    } else {
      const std::uint64_t before = ticks();
      push(next, tasks[next]);
      job.push_ticks->push_back(static_cast<std::uint32_t>(ticks() - before));
    }
    if (++next == tasks.size()) next = 0;
  }
  times.push = seconds_since(begin);
  if (job.held) job.held();
  finish();
  times.total = seconds_since(begin);
  return times;
}

}  // namespace windrow::perf
