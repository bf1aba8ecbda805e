// Taskflow's dependent-async tasks. Taskflow has no variables, so the caller tracks hazards.
#include <latch>
#include <taskflow/taskflow.hpp>

#include "hazards.h"
#include "systems.h"

namespace windrow::perf {
namespace {

class TaskflowSystem : public System {
 public:
  TaskflowSystem(const Pattern& pattern, const SystemOptions& options)
      : executor_(static_cast<std::size_t>(options.workers)), hazards_(pattern) {}

  Times run(const Job& job) override {
    std::latch gate(1);
    hazards_.forget();
    if (job.held) hazards_.enter_everywhere(executor_.silent_dependent_async([&] { gate.wait(); }));
    const Times times = time_pushes(
        job, [&](std::size_t, const Task& task) { push(job.work(task), task); },
        [&] {
          gate.count_down();
          executor_.wait_for_all();
        });
    return times;
  }

 private:
  void push(Work work, const Task& task) {
    before_.clear();
    hazards_.precede(task, [&](const tf::AsyncTask& before) { before_.push_back(before); });
    hazards_.enter(task, executor_.silent_dependent_async(work, before_.begin(), before_.end()));
  }

  tf::Executor executor_;
  Hazards<tf::AsyncTask> hazards_;
  std::vector<tf::AsyncTask> before_;  // predecessors of the op that is being pushed
};

}  // namespace

const SystemKind taskflow_system = {
    .name = "taskflow", .make = make<TaskflowSystem>, .holds = SystemKind::Holds::a_backlog};

}  // namespace windrow::perf
