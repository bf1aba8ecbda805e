// Windrow's own engine, policy pool.
#include "systems.h"
#include "windrow/engine/engine.h"

namespace windrow::perf {
namespace {

class WindrowSystem : public System {
 public:
  WindrowSystem(const Pattern& pattern, int workers) : engine_({.policy = Policy::pool, .workers = workers}) {
    std::vector<Var> cells;
    for (int i = 0; i < pattern.cells; ++i) cells.push_back(engine_.new_var());
    const auto cell = [&](int i) { return cells[static_cast<std::size_t>(i)]; };
    for (const Task& task : pattern.tasks) {
      std::vector<Access> accesses;
      for (int k = 0; k < task.read_count; ++k) accesses.push_back(read(cell(task.reads[static_cast<std::size_t>(k)])));
      if (task.mutates != Task::none) accesses.push_back(mutate(cell(task.mutates)));
      accesses_.push_back(std::move(accesses));
    }
  }

  Times run(const Job& job) override {
    const auto finish = [this] { engine_.wait_all(); };
    if (!job.pattern.replayed) {
      return time_pushes(
          job, [&](std::size_t number, const Task& task) { engine_.push(job.work(task), accesses_[number]); }, finish);
    }
    std::vector<DeclaredOp> declared;
    for (std::size_t i = 0; i < accesses_.size(); ++i) {
      declared.push_back(engine_.declare(job.work(job.pattern.tasks[i]), accesses_[i]));
    }
    return time_pushes(
        job, [&](std::size_t number, const Task&) { engine_.push(declared[number]); }, finish);
  }

 private:
  Engine engine_;
  std::vector<std::vector<Access>> accesses_;  // by task
};

}  // namespace

std::unique_ptr<System> make_windrow(const Pattern& pattern, int workers) {
  return std::make_unique<WindrowSystem>(pattern, workers);
}

}  // namespace windrow::perf
