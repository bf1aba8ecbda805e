// Windrow's own engine in five ways: policy pool, also with ops that capture much, and policy per_device, all with
// access lists that are made in advance; typed pushes, and untyped ones of the same functions whose access lists are
// made at the push. Replayed patterns are captured as graphs.
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

/// Pushes an op that all later ops depend on. It ends once the gate is open and the pushing thread has had time to fall
/// asleep in its wait, because what that thread does until then would differ from run to run.
void push_gate(Engine& engine, const Gate& gate, AccessList all) {
  const auto pass = [is_open = gate.is_open()] {
    is_open->wait(false);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  };
  engine.push(pass, all, {.name = "gate"});
}

EngineOptions options_of(const SystemOptions& options, Policy policy = Policy::pool) {
  EngineOptions result{.policy = policy, .workers = options.workers};
  if (options.pending_ops > 0) result.max_pending_ops = options.pending_ops;
  return result;
}

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
      : way_(pattern.captures ? Way::with_captures : way),
        engine_(options_of(options, way_ == Way::per_device ? Policy::per_device : Policy::pool)),
        replayed_(pattern) {
    if (pattern.beside_lane) engine_.add_lane(std::make_shared<IdleLane>());
    for (int i = 0; i < pattern.cells; ++i) cells_.push_back(engine_.new_var());
    for (const Var& cell : cells_) all_.push_back(overwrite(cell));
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
    if (job.held) push_gate(engine_, gate, all_);
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

  const Way way_;
  Engine engine_;
  std::vector<Var> cells_;
  std::vector<Access> all_;                    // to the cells
  std::vector<std::vector<Access>> accesses_;  // by task
  std::vector<Work> work_of_declared_;         // by task
  std::vector<DeclaredOp> declared_;           // by task
  Replayed<Captured> replayed_;                // declared last, so that its graphs are destroyed before the engine
};

/// The cells of a pattern are objects, which its ops use. Either they are values, and ops receive them; or ops hold
/// pointers to them, and the access list is written at the push.
enum class Cells { values, pointers };

template <Cells form>
class ObjectsSystem : public System {
 public:
  ObjectsSystem(const Pattern& pattern, const SystemOptions& options)
      : engine_(options_of(options)), cells_(engine_, "cell", static_cast<std::size_t>(pattern.cells)) {
    objects_ = &cells_[0].edit();
    for (std::size_t i = 0; i < cells_.size(); ++i) {
      vars_.push_back(cells_[i].var());
      all_.push_back(overwrite(vars_[i]));
    }
  }

  Times run(const Job& job) override {
    Gate gate;
    if (job.held) push_gate(engine_, gate, all_);
    const auto finish = [&] {
      gate.open();
      engine_.wait_all();
    };
    return time_pushes(
        job,
        [&](std::size_t, const Task& task) {
          form == Cells::values ? push_typed(job.work(task), task) : push_untyped(job.work(task), task);
        },
        finish);
  }

 private:
  struct Cell {};

  ValueRef<Cell>& cell(int i) { return cells_[static_cast<std::size_t>(i)]; }
  Cell* object(int i) { return objects_ + i; }
  Var var(int i) const { return vars_[static_cast<std::size_t>(i)]; }

  template <class... C>
  static void use(Work work, const C&...) {
    work();
  }

  /// Tasks read up to three cells, and mutate one if they read none or several.
  void push_typed(Work work, const Task& task) {
    const auto& [a, b, c] = task.reads;
    const int m = task.mutates;
    switch (task.read_count) {
      case 0:
        return engine_.push([work](Cell& x) { use(work, x); }, mutate(cell(m)));
      case 1:
        return engine_.push([work](const Cell& x) { use(work, x); }, read(cell(a)));
      case 2:
        return engine_.push([work](const Cell& x, const Cell& y, Cell& to) { use(work, x, y, to); }, read(cell(a)),
                            read(cell(b)), mutate(cell(m)));
      default:
        return engine_.push([work](const Cell& x, const Cell& y, const Cell& z, Cell& to) { use(work, x, y, z, to); },
                            read(cell(a)), read(cell(b)), read(cell(c)), mutate(cell(m)));
    }
  }

  void push_untyped(Work work, const Task& task) {
    const auto& [a, b, c] = task.reads;
    const int m = task.mutates;
    switch (task.read_count) {
      case 0:
        return engine_.push([work, x = object(m)] { use(work, *x); }, {mutate(var(m))});
      case 1:
        return engine_.push([work, x = object(a)] { use(work, *x); }, {read(var(a))});
      case 2:
        return engine_.push([work, x = object(a), y = object(b), to = object(m)] { use(work, *x, *y, *to); },
                            {read(var(a)), read(var(b)), mutate(var(m))});
      default:
        return engine_.push(
            [work, x = object(a), y = object(b), z = object(c), to = object(m)] { use(work, *x, *y, *z, *to); },
            {read(var(a)), read(var(b)), read(var(c)), mutate(var(m))});
    }
  }

  Engine engine_;
  windrow::Values<Cell> cells_;
  Cell* objects_ = nullptr;
  std::vector<Var> vars_;
  std::vector<Access> all_;
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
const SystemKind windrow_values_system = {.name = "windrow-values",
                                          .make = make<ObjectsSystem<Cells::values>>,
                                          .takes = SystemKind::Takes::pushed_patterns,
                                          .holds = SystemKind::Holds::a_backlog};
const SystemKind windrow_pointers_system = {.name = "windrow-pointers",
                                            .make = make<ObjectsSystem<Cells::pointers>>,
                                            .takes = SystemKind::Takes::pushed_patterns,
                                            .holds = SystemKind::Holds::a_backlog};

}  // namespace windrow::perf
