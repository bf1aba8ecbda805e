// OpenMP tasks with depend clauses, run by libgomp.
#include <omp.h>

#include "systems.h"

namespace windrow::perf {
namespace {

class OpenMpSystem : public System {
 public:
  OpenMpSystem(const Pattern& pattern, const SystemOptions& options)
      : workers_(options.workers), cells_(static_cast<std::size_t>(pattern.cells)) {}

  /// The pushing thread belongs to the team: it runs tasks when too many are waiting, and after the last push. With one
  /// thread more than there are cores, libgomp would take many times as long, because its threads spin.
  Times run(const Job& job) override {
    Times times;
#pragma omp parallel num_threads(workers_)
#pragma omp single
    times = time_pushes(
        job, [&](std::size_t, const Task& task) { push(job.work(task), task); },
        [] {
#pragma omp taskwait
        });
    return times;
  }

 private:
  void push(Work work, const Task& task) {
    char* cells = cells_.data();
    const auto& reads = task.reads;
    [[maybe_unused]] char &a = cells[at(reads[0])], &b = cells[at(reads[1])], &c = cells[at(reads[2])];
    [[maybe_unused]] char& own = cells[at(task.mutates)];
    switch (task.read_count) {
      case 0:
#pragma omp task firstprivate(work) depend(inout : own)
        work();
        break;
      case 1:
#pragma omp task firstprivate(work) depend(in : a)
        work();
        break;
      case 2:
#pragma omp task firstprivate(work) depend(in : a, b) depend(inout : own)
        work();
        break;
      default:
#pragma omp task firstprivate(work) depend(in : a, b, c) depend(inout : own)
        work();
    }
  }
  static std::size_t at(int cell) { return static_cast<std::size_t>(cell == Task::none ? 0 : cell); }

  const int workers_;
  std::vector<char> cells_;  // depend clauses refer to their addresses
};

}  // namespace

/// A waiting thread of libgomp spins before it sleeps, by default for milliseconds if libgomp believes that each thread
/// has a core. If other programs use the core, or a quota limits the process to one core, each wait then lasts that
/// long, which is hundreds of times the cost of an op. This number of spins takes about as long as falling asleep and
/// being woken up.
const SystemKind openmp_system = {
    .name = "openmp", .make = make<OpenMpSystem>, .needs = {.name = "GOMP_SPINCOUNT", .value = "2000"}};

}  // namespace windrow::perf
