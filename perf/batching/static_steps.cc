// Training steps and networks of operators, pushed, and replayed by a Static: time, allocations, and peak memory by
// when their tensors get memory and where, as SINGA reports them for its graphs.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <future>
#include <span>
#include <thread>

#include "allocations.h"
#include "batching/interleaved_runs.h"
#include "batching/operator_programs.h"
#include "batching/step_listing.h"
#include "batching/tables.h"

namespace windrow::perf {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point began) { return std::chrono::duration<double>(Clock::now() - began).count(); }

using Order = StaticOptions::Order;

/// How a step is done.
struct Way {
  enum class Does {
    allocate_before,  ///< all results are made and allocated before the step, and kept until its end
    allocate_late,    ///< the same, but the op that writes a result first allocates it
    push,             ///< a result is made where an operator is applied, and freed behind the last op that uses it
    plan,             ///< all results lie in one block, at places that the memory planner gave them once
    replay,           ///< by a Static, which plans likewise
    replay_cells,     ///< each cell of a recurrent network by a StaticBlock
  } does;
  const char* name;
  Order order = Order::parallel;

  /// Whether the calling thread goes on without waiting for the step.
  bool runs_ahead() const { return does == Does::push || does == Does::replay || does == Does::replay_cells; }
};
constexpr Way ways[] = {{Way::Does::allocate_before, "eager"},
                        {Way::Does::allocate_late, "lazily allocated"},
                        {Way::Does::push, "recycled"},
                        {Way::Does::plan, "planned"},
                        {Way::Does::replay, "replayed, parallel"},
                        {Way::Does::replay, "replayed, serial", Order::serial},
                        {Way::Does::replay, "replayed, breadth first", Order::breadth_first},
                        {Way::Does::replay_cells, "cells replayed, parallel"},
                        {Way::Does::replay_cells, "cells replayed, serial", Order::serial}};
constexpr const NamedProgram* programs[] = {&mlp_step, &fixed_lstm_step, &mlp_forward, &tree_lstm_forward};

/// Counts the bytes that were requested. Pools count whole pieces.
class RequestedBytes final : public DividingAllocator {
 public:
  explicit RequestedBytes(std::shared_ptr<Allocator> below) : DividingAllocator(std::move(below), "requested bytes") {}

  std::byte* allocate(std::size_t bytes) override {
    std::byte* const start = below_->allocate(bytes);
    const std::size_t now = live_ += bytes;
    std::size_t most = peak_;
    while (most < now && !peak_.compare_exchange_weak(most, now)) {
    }
    return start;
  }
  void deallocate(std::byte* start, std::size_t bytes) noexcept override {
    below_->deallocate(start, bytes);
    live_ -= bytes;
  }

  /// From now on, what is live now does not count. No op may be pending.
  void begin() {
    base_ = live_;
    peak_ = base_;
  }
  std::size_t peak() const { return peak_ - base_; }

 private:
  std::atomic<std::size_t> live_{0}, peak_{0};  // written by all threads
  std::size_t base_ = 0;
};

/// One way to run a program, on an engine of its own: with policy `serial` if there are no workers.
class PlacedSteps {
 public:
  PlacedSteps(const NamedProgram& program, const ProgramSizes& sizes, const Way& way, int workers,
              std::span<const ResultShape> shapes, const MemoryPlan& plan)
      : way_(way),
        workers_(workers),
        shapes_(shapes),
        plan_(plan),
        engine_({.policy = workers == 0 ? Policy::serial : Policy::pool, .workers = std::max(1, workers)}),
        program_(program.make(host_, sizes)),
        static_(host_,
                [this](const StaticInputs&) { return std::vector{program_->step(program_->inputs(), apply_new_)}; },
                {.order = way.order}) {
    if (way.does == Way::Does::replay_cells) has_cells_ = program_->use_blocks({.order = way.order});
    engine_.wait_all();
    bytes_->begin();
  }

  const Way& way() const { return way_; }
  int workers() const { return workers_; }
  /// Whether the program can step so. One op at a time has one order.
  bool possible() const {
    if (way_.does == Way::Does::replay_cells) return has_cells_ && workers_ > 0;
    return workers_ > 0 || way_.does != Way::Does::replay || way_.order == Order::serial;
  }

  /// The result of a step.
  std::vector<float> computed() { return step().get(); }
  /// Microseconds of a step.
  double step_time(double seconds) {
    engine_.wait_all();
    const auto began = Clock::now();
    int steps = 0;
    for (; steps == 0 || since(began) < seconds; ++steps) {
      static_cast<void>(step());
      engine_.wait_all();
    }
    return 1e6 * since(began) / steps;
  }
  /// Of all steps so far, in bytes, besides parameters and inputs.
  std::size_t peak() const { return bytes_->peak(); }

  /// Microseconds of the calling thread for a step, while the workers are held back.
  double calling_time(double seconds) {
    const int steps = steps_while_held();
    double spent = 0;
    int taken = 0;
    for (; taken == 0 || spent < seconds / 10; taken += steps) {
      engine_.wait_all();
      std::promise<void> gate;
      const std::shared_future<void> opened = gate.get_future().share();
      std::vector<Var> busy;
      for (int worker = 0; worker < workers_; ++worker) {
        busy.push_back(engine_.new_var("busy"));
        engine_.push([opened] { opened.wait(); }, {mutate(busy.back())});
      }
      const auto began = Clock::now();
      for (int i = 0; i < steps; ++i) static_cast<void>(step());
      spent += since(began);
      gate.set_value();
      for (const Var& var : busy) engine_.retire(var);
    }
    return 1e6 * spent / taken;
  }

  /// Allocations of a step, of all threads: the median of several rounds. Some rounds may find caches of the engine's
  /// threads not filled yet.
  double allocations() {
    constexpr int rounds = 21, steps = 10;
    std::vector<double> all;
    for (int round = 0; round < rounds; ++round) {
      engine_.wait_all();
      const CountedAllocations counted;
      for (int i = 0; i < steps; ++i) static_cast<void>(step());
      while (engine_.stats().pending > 0) std::this_thread::yield();
      all.push_back(static_cast<double>(counted.calls()) / steps);
    }
    return median_of(all);
  }

 private:
  /// So few that the thread is not held back by pending ops; frees count besides.
  int steps_while_held() {
    constexpr std::uint64_t most_pending = 3000;
    const std::uint64_t before = engine_.stats().pushed;
    program_->step(program_->inputs(), apply_new_);
    const std::uint64_t ops = engine_.stats().pushed - before;
    return static_cast<int>(std::max<std::uint64_t>(1, most_pending / ops));
  }

  Device counted_host() {
    Device host = host_device(engine_);
    host.memory = bytes_ = std::make_shared<RequestedBytes>(host.memory);
    return host;
  }

  Tensor step() {
    if (way_.does == Way::Does::replay) return static_().front();
    if (way_.runs_ahead()) return program_->step(program_->inputs(), apply_new_);
    make_results();
    const Tensor result = program_->step(program_->inputs(), apply_made_);
    if (way_.does != Way::Does::plan) engine_.wait_all();  // kept till the end of the last op
    results_.clear();
    return result;
  }

  void make_results() {
    for (const ResultShape& shape : shapes_) results_.emplace_back(host_, shape.rows, shape.width, shape.name);
    next_ = 0;
    if (way_.does == Way::Does::allocate_before) {
      for (const Tensor& result : results_) result.buffer()->bytes().write();
    } else if (way_.does == Way::Does::plan) {
      Arena arena(engine_, host_.memory, plan_.bytes);
      for (std::size_t k = 0; k < results_.size(); ++k) {
        arena.lay(*results_[k].buffer(), plan_.offsets[shapes_[k].number]);
      }
    }
  }

  const Way way_;
  const int workers_;
  bool has_cells_ = false;
  const std::span<const ResultShape> shapes_;
  const MemoryPlan& plan_;
  Engine engine_;
  const program::ToldOnce once_{engine_};
  std::shared_ptr<RequestedBytes> bytes_;
  const Device host_ = counted_host();
  std::vector<Tensor> results_;  // of the step, in the order in which it applies operators
  std::size_t next_ = 0;         // of them
  const Tape::Apply apply_new_ = applied_to_new(host_);
  const Tape::Apply apply_made_ = [this](const Operator& op, const Operands& operands, const Tensor* out,
                                         std::source_location pushed_at) {
    return apply_new_(op, operands, out == nullptr ? &results_.at(next_++) : out, pushed_at);
  };
  const std::unique_ptr<OperatorProgram> program_;
  Static static_;
};

/// All rows of one program.
struct ProgramRows {
  ProgramRows(const NamedProgram& measured, const TableOptions& options)
      : program(measured), listing(measured, sizes_of(options)) {
    std::vector<int> worker_counts = {0};
    worker_counts.insert(worker_counts.end(), options.workers.begin(), options.workers.end());
    for (const int workers : worker_counts) {
      for (const Way& way : ways) {
        auto one = std::make_unique<PlacedSteps>(program, sizes_of(options), way, workers, listing.results(),
                                                 plan_of(way, workers));
        if (!one->possible()) continue;
        require_equal(one->computed(), way.name);
        steps.push_back(std::move(one));
      }
    }
  }
  /// All variants begin with the same parameters, so a first step has one result.
  void require_equal(const std::vector<float>& computed, const std::string& name) {
    if (expected.empty()) expected = computed;
    if (computed == expected) return;
    throw Error(std::string("static: a step of ") + program.name + " that is " + name + " computes another result");
  }
  static ProgramSizes sizes_of(const TableOptions& options) {
    return {options.batches.front(), options.hidden.front(), options.workload.seed};
  }
  /// The result of a replay keeps its memory until the next one has overwritten it.
  const BoundedPlan& plan_of(const Way& way, int workers) const {
    if (way.does == Way::Does::replay) return way.order == Order::serial ? serial_replays : parallel_replays;
    return workers == 0 ? serial : parallel;
  }

  const NamedProgram& program;
  const StepListing listing;
  const BoundedPlan serial = listing.plan(StepOrder::serial, Held::after),
                    parallel = listing.plan(StepOrder::dependences, Held::after),
                    serial_replays = listing.plan(StepOrder::serial, Held::throughout),
                    parallel_replays = listing.plan(StepOrder::dependences, Held::throughout);
  std::vector<std::unique_ptr<PlacedSteps>> steps;
  std::vector<float> expected;  // the result of a first step
};

}  // namespace

Table static_steps(const TableOptions& options) {
  Table table("Steps of operators, pushed and replayed: time and peak memory",
              "Layers " + std::to_string(options.hidden.front()) + " wide, minibatches of " +
                  std::to_string(options.batches.front()) +
                  ": a training step of a perceptron of 3 layers and of an LSTM over 16 steps, with momentum, and "
                  "perceptrons of 20 layers and binary Tree-LSTMs of 16 leaves forward; with no workers one op at a "
                  "time. Step: the time from the first push to the end of all ops, as medians of repetitions in which "
                  "all variants took turns; its ratio is to `eager` with as many workers. Calling: the time of the "
                  "thread that pushes or replays, while the workers are held back; its ratio is to `recycled`. "
                  "Allocations: calls of operator new for a step, of all threads. Replays read their inputs where "
                  "these lie. Peak: the most bytes requested at "
                  "one moment, without parameters and inputs. The bound: no plan for this order takes less; the result "
                  "of a replayed step keeps its memory for the next one. A plan for concurrent ops is right for each "
                  "order of ops that do not depend on each other, so its bound can be above what one run takes without "
                  "a plan. The sum: all tensors that a step makes.",
              {{"program"},
               {"workers", 0},
               {"step"},
               {"step us", 1},
               {"step ratio", 3},
               {"calling us", 1},
               {"calling ratio", 3},
               {"allocations", 1},
               {"peak KiB", 1},
               {"bound KiB", 1},
               {"sum KiB", 1},
               {"peak / bound", 3}});
  std::vector<std::unique_ptr<ProgramRows>> all;
  InterleavedRuns times, calls;
  for (const NamedProgram* const program : programs) {
    const auto& rows = all.emplace_back(std::make_unique<ProgramRows>(*program, options));
    for (const auto& steps : rows->steps) {
      const bool called = steps->way().runs_ahead() && steps->workers() > 0;
      times.add([one = steps.get(), seconds = options.turn_ms / 1e3] { return one->step_time(seconds); });
      calls.add([one = steps.get(), seconds = options.turn_ms / 1e3, called] {
        return called ? one->calling_time(seconds) : NAN;
      });
    }
  }
  times.run(options.repetitions);
  std::vector<double> peaks;  // before the calling thread runs ahead by several steps
  for (const auto& rows : all) {
    for (const auto& steps : rows->steps) peaks.push_back(static_cast<double>(steps->peak()) / 1024);
  }
  calls.run(options.repetitions);
  std::size_t i = 0, eager = 0, recycled = 0;
  for (const auto& rows : all) {
    for (const auto& steps : rows->steps) {
      const Way& way = steps->way();
      if (way.does == Way::Does::allocate_before) eager = i;
      if (way.does == Way::Does::push) recycled = i;
      const bool counted = way.runs_ahead() && steps->workers() > 0;
      const bool planned = way.does != Way::Does::replay_cells && way.order != Order::breadth_first;
      const BoundedPlan& plan = rows->plan_of(way, steps->workers());
      const double bound = planned ? static_cast<double>(plan.lower_bound) / 1024 : NAN;
      table.add({rows->program.name, static_cast<double>(steps->workers()), way.name, times.median(i),
                 times.ratio(i, eager), calls.median(i), counted ? calls.ratio(i, recycled) : NAN,
                 counted ? steps->allocations() : NAN, peaks[i], bound, static_cast<double>(plan.unshared_bytes) / 1024,
                 peaks[i] / bound});
      ++i;
    }
  }
  return table;
}

}  // namespace windrow::perf
