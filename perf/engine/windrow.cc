// Windrow's own engine in four ways: policy pool, also with typed pushes and with ops that capture much, and policy
// per_device. Replayed patterns are captured as graphs.
#include <array>
#include <atomic>
#include <cstddef>
#include <thread>

#include "graph.h"
#include "systems.h"
#include "windrow/engine/value.h"

namespace windrow::perf {
namespace {

/// The destructor opens the gate, also during an exception, so that no op waits forever.
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

/// A Graph for Replayed. run() launches and does not wait.
struct Captured {
  Graph graph;

  void run(std::int64_t times) {
    for (; times > 0; --times) graph.launch();
  }
};

/// An ordered lane whose points are reached at once.
class IdleLane final : public Lane {
 public:
  std::string_view name() const override { return "idle"; }
  int device() const override { return 1; }
  Point record() noexcept override { return {this, ++recorded_}; }
  bool reached(Point) const noexcept override { return true; }
  bool can_wait_for(const Lane&) const noexcept override { return true; }
  void wait(Point, IfFailed) noexcept override {}
  void when_reached(Point, Reached callback) noexcept override { callback(nullptr); }

 private:
  std::uint64_t recorded_ = 0;
};

class WindrowSystem : public System {
 public:
  enum class Way { plain, with_captures, per_device };

  WindrowSystem(const Pattern& pattern, const SystemOptions& options, Way way = Way::plain)
      : way_(pattern.captures ? Way::with_captures : way), engine_(engine_options(options)), replayed_(pattern) {
    if (pattern.beside_lane) engine_.add_lane(std::make_shared<IdleLane>());
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
    if (job.pattern.declared) {
      if (declared_.empty()) declare();
      for (std::size_t i = 0; i < work_of_declared_.size(); ++i) work_of_declared_[i] = job.work(job.pattern.tasks[i]);
      return time_pushes(
          job, [&](std::size_t number, const Task&) { engine_.push(declared_[number]); }, finish);
    }
    if (!job.pattern.replayed) {
      const auto push = [&](std::size_t number, const Task& task) { engine_.push(job.work(task), accesses_[number]); };
      const auto push_large = [&](std::size_t number, const Task& task) {
        const std::array<std::byte, captured_bytes> captured{};
        engine_.push([work = job.work(task), captured] { work(); }, accesses_[number]);
      };
      if (way_ == Way::with_captures) return time_pushes(job, push_large, finish);
      return time_pushes(job, push, finish);
    }
    return replayed_.run(
        job, [&](std::int64_t length) { return capture(length); },
        [&] {
          if (job.held) job.held();
          finish();
        });
  }

 private:
  static constexpr std::size_t captured_bytes = 256;  // with_captures: in addition to what other ops capture

  EngineOptions engine_options(const SystemOptions& options) const {
    EngineOptions result{.policy = way_ == Way::per_device ? Policy::per_device : Policy::pool,
                         .workers = options.workers};
    if (options.pending_ops > 0) result.max_pending_ops = options.pending_ops;
    return result;
  }

  std::unique_ptr<Captured> capture(std::int64_t length) {
    const auto push_all = [&] {
      for (std::int64_t i = 0; i < length; ++i) {
        const std::size_t number = static_cast<std::size_t>(i) % accesses_.size();
        engine_.push([one = replayed_.work() + number] { (*one)(); }, accesses_[number]);
      }
    };
    return std::make_unique<Captured>(Captured{engine_.capture(push_all)});
  }

  void declare() {
    work_of_declared_.resize(accesses_.size());
    for (std::size_t i = 0; i < accesses_.size(); ++i) {
      declared_.push_back(engine_.declare([one = &work_of_declared_[i]] { (*one)(); }, accesses_[i]));
    }
  }

  /// Pushes an op that all later ops depend on. It ends once the gate is open and the pushing thread has had time to
  /// fall asleep in its wait, because what that thread does until then would differ from run to run.
  void push_gate(const Gate& gate) {
    std::vector<Access> all;
    for (const Var& cell : cells_) all.push_back(overwrite(cell));
    const auto pass = [is_open = gate.is_open()] {
      is_open->wait(false);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    };
    engine_.push(pass, all, {.name = "gate"});
  }

  const Way way_;
  Engine engine_;
  std::vector<Var> cells_;
  std::vector<std::vector<Access>> accesses_;  // by task
  std::vector<Work> work_of_declared_;         // by task
  std::vector<DeclaredOp> declared_;           // by task
  Replayed<Captured> replayed_;                // declared last, so that its graphs are destroyed before the engine
};

/// Typed pushes: the cells of a pattern are values, which ops receive.
class ValuesSystem : public System {
 public:
  ValuesSystem(const Pattern& pattern, const SystemOptions& options)
      : engine_(engine_options(options)), cells_(engine_, "cell", static_cast<std::size_t>(pattern.cells)) {}

  Times run(const Job& job) override {
    return time_pushes(
        job, [&](std::size_t, const Task& task) { push(job.work(task), task); }, [&] { engine_.wait_all(); });
  }

 private:
  struct Cell {};

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
  windrow::Values<Cell> cells_;
};

template <WindrowSystem::Way way>
std::unique_ptr<System> make_in(const Pattern& pattern, const SystemOptions& options) {
  return std::make_unique<WindrowSystem>(pattern, options, way);
}

}  // namespace

const SystemKind windrow_system = {
    .name = "windrow", .make = make<WindrowSystem>, .holds = SystemKind::Holds::a_backlog};
const SystemKind windrow_captures_system = {.name = "windrow-captures",
                                            .make = make_in<WindrowSystem::Way::with_captures>,
                                            .takes = SystemKind::Takes::pushed_patterns,
                                            .holds = SystemKind::Holds::a_backlog};
const SystemKind windrow_per_device_system = {.name = "windrow-per-device",
                                              .make = make_in<WindrowSystem::Way::per_device>,
                                              .takes = SystemKind::Takes::pushed_patterns,
                                              .holds = SystemKind::Holds::a_backlog};
const SystemKind windrow_values_system = {
    .name = "windrow-values", .make = make<ValuesSystem>, .takes = SystemKind::Takes::pushed_patterns};

}  // namespace windrow::perf
