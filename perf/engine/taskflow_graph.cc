// Taskflow's static graph, built once and run repeatedly.
#include <taskflow/taskflow.hpp>

#include "graph.h"
#include "systems.h"

namespace windrow::perf {
namespace {

class StaticGraph {
 public:
  struct Work {
    tf::Executor& executor;
    const perf::Work* by_task;
  };

  StaticGraph(const Pattern& pattern, std::int64_t length, Work work) : executor_(work.executor) {
    Hazards<tf::Task> hazards(pattern);
    for (std::int64_t i = 0; i < length; ++i) {
      const std::size_t number = static_cast<std::size_t>(i) % pattern.tasks.size();
      const Task& task = pattern.tasks[number];
      const tf::Task node = graph_.emplace([one = work.by_task + number] { (*one)(); });
      hazards.precede(task, [&](tf::Task& before) { before.precede(node); });
      hazards.enter(task, node);
    }
  }

  void run(std::int64_t times) { executor_.run_n(graph_, static_cast<std::size_t>(times)).wait(); }

 private:
  tf::Executor& executor_;
  tf::Taskflow graph_;
};

class TaskflowGraphSystem : public System {
 public:
  TaskflowGraphSystem(const Pattern& pattern, const SystemOptions& options)
      : executor_(static_cast<std::size_t>(options.workers)), replayed_(pattern) {}

  Times run(const Job& job) override {
    return replayed_.run(job, [&](std::int64_t length) {
      return std::make_unique<StaticGraph>(job.pattern, length, StaticGraph::Work{executor_, replayed_.work()});
    });
  }

 private:
  tf::Executor executor_;
  Replayed<StaticGraph> replayed_;
};

}  // namespace

const SystemKind taskflow_graph_system = {
    .name = "taskflow-graph", .make = make<TaskflowGraphSystem>, .takes = SystemKind::Takes::replayed_patterns};

}  // namespace windrow::perf
