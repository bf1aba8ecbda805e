// Typed pushes: the cells of a pattern are values, which ops receive.
#include <cstddef>
#include <tuple>

#include "systems.h"
#include "windrow/engine/value.h"

namespace windrow::perf {
namespace {

struct Cell {};

class ValuesSystem : public System {
 public:
  ValuesSystem(const Pattern& pattern, const SystemOptions& options)
      : engine_(engine_options(options)), cells_(engine_, "cell", static_cast<std::size_t>(pattern.cells)) {}

  Times run(const Job& job) override {
    return time_pushes(
        job, [&](std::size_t, const Task& task) { push(job.work(task), task); }, [&] { engine_.wait_all(); });
  }

 private:
  static EngineOptions engine_options(const SystemOptions& options) {
    EngineOptions result{.policy = Policy::pool, .workers = options.workers};
    if (options.pending_ops > 0) result.max_pending_ops = options.pending_ops;
    return result;
  }

  ValueRef<Cell>& cell(int i) { return cells_[static_cast<std::size_t>(i)]; }
  ValueRef<Cell>& read_by(const Task& task, int k) { return cell(task.reads[static_cast<std::size_t>(k)]); }

  /// Tasks read up to three cells, and mutate one if they read none or several.
  void push(Work work, const Task& task) {
    const auto mutated = [&]() -> ValueRef<Cell>& { return cell(task.mutates); };
    switch (task.read_count) {
      case 0:
        return engine_.push([work](Cell&) { work(); }, mutate(mutated()));
      case 1:
        if (task.mutates != Task::none) refuse("windrow-values", {});
        return engine_.push([work](const Cell&) { work(); }, read(read_by(task, 0)));
      case 2:
        return engine_.push([work](const Cell&, const Cell&, Cell&) { work(); }, read(read_by(task, 0)),
                            read(read_by(task, 1)), mutate(mutated()));
      default:
        return engine_.push([work](const Cell&, const Cell&, const Cell&, Cell&) { work(); }, read(read_by(task, 0)),
                            read(read_by(task, 1)), read(read_by(task, 2)), mutate(mutated()));
    }
  }

  Engine engine_;
  Values<Cell> cells_;
};

}  // namespace

const SystemKind windrow_values_system = {
    .name = "windrow-values", .make = make<ValuesSystem>, .takes = SystemKind::Takes::pushed_patterns};

}  // namespace windrow::perf
