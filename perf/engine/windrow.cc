// Windrow's own engine, policy pool.
#include <atomic>
#include <thread>

#include "systems.h"
#include "windrow/engine/engine.h"

namespace windrow::perf {
namespace {

/// Opens at the latest when its scope ends, also by an exception, so that no op waits for ever.
class Gate {
 public:
  ~Gate() { open(); }

  void open() {
    is_open_->store(true);
    is_open_->notify_all();
  }
  std::shared_ptr<const std::atomic<bool>> is_open() const { return is_open_; }

 private:
  const std::shared_ptr<std::atomic<bool>> is_open_ = std::make_shared<std::atomic<bool>>(false);
};

class WindrowSystem : public System {
 public:
  WindrowSystem(const Pattern& pattern, const SystemOptions& options) : engine_(engine_options(options)) {
    for (int i = 0; i < pattern.cells; ++i) cells_.push_back(engine_.new_var());
    const auto cell = [&](int i) { return cells_[static_cast<std::size_t>(i)]; };
    for (const Task& task : pattern.tasks) {
      std::vector<Access> accesses;
      for (int k = 0; k < task.read_count; ++k) accesses.push_back(read(cell(task.reads[static_cast<std::size_t>(k)])));
      if (task.mutates != Task::none) accesses.push_back(mutate(cell(task.mutates)));
      accesses_.push_back(std::move(accesses));
    }
  }

  Times run(const Job& job) override {
    Gate gate;
    if (job.held) push_gate(gate);
    const auto finish = [&] {
      if (job.held) gate.open();
      engine_.wait_all();
    };
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
  static EngineOptions engine_options(const SystemOptions& options) {
    EngineOptions result{.policy = Policy::pool, .workers = options.workers};
    if (options.pending_ops > 0) result.max_pending_ops = options.pending_ops;
    return result;
  }

  /// All that is pushed later comes after this op, which ends once the gate is open and the thread that pushed had the
  /// time to fall asleep in its wait: what it does until then would differ from run to run.
  void push_gate(const Gate& gate) {
    std::vector<Access> all;
    for (const Var& cell : cells_) all.push_back(overwrite(cell));
    const auto pass = [is_open = gate.is_open()] {
      is_open->wait(false);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    };
    engine_.push(pass, all, {.name = "gate"});
  }

  Engine engine_;
  std::vector<Var> cells_;
  std::vector<std::vector<Access>> accesses_;  // by task
};

}  // namespace

const SystemKind windrow_system = {
    .name = "windrow", .make = make<WindrowSystem>, .holds = SystemKind::Holds::a_backlog};

}  // namespace windrow::perf
