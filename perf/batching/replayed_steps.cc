// Training steps of small networks, pushed by their body each time, and replayed by a Static in each order. Three
// figures: the time of the calling thread, while nothing runs; the time of whole steps, one after the other; and the
// allocations of a step.
#include <algorithm>
#include <chrono>
#include <future>
#include <thread>

#include "allocations.h"
#include "batching/operator_programs.h"
#include "batching/tables.h"
#include "batching/turns.h"

namespace windrow::perf {
namespace {

using Order = StaticOptions::Order;

/// What a step replays: nothing, all of itself, or each cell of a network that is recurrent.
struct Stepping {
  enum class Replays { nothing, step, cells } replays;
  Order order;
  const char* name;
};
constexpr Stepping steppings[] = {{Stepping::Replays::nothing, Order::parallel, "pushed"},
                                  {Stepping::Replays::step, Order::parallel, "replayed, parallel"},
                                  {Stepping::Replays::step, Order::serial, "replayed, serial"},
                                  {Stepping::Replays::step, Order::breadth_first, "replayed, breadth first"},
                                  {Stepping::Replays::cells, Order::parallel, "cells replayed, parallel"},
                                  {Stepping::Replays::cells, Order::serial, "cells replayed, serial"}};

class RecordedSteps {
 public:
  RecordedSteps(const NamedProgram& program, const ProgramSizes& sizes, const Stepping& stepping, int workers)
      : stepping_(stepping),
        workers_(workers),
        engine_({.policy = Policy::pool, .workers = workers}),
        program_(program.make(host_, sizes)),
        static_(host_, [this](const StaticInputs& call) { return pushed(call); }, {.order = stepping.order}) {
    if (stepping.replays == Stepping::Replays::cells) has_cells_ = program_->use_blocks({.order = stepping.order});
    const std::uint64_t before = engine_.stats().pushed;
    pushed(program_->inputs());
    const std::uint64_t ops = engine_.stats().pushed - before;
    steps_while_held_ = static_cast<int>(std::max<std::uint64_t>(1, most_pending / ops));
  }

  /// Whether the program can step so.
  bool possible() const { return stepping_.replays != Stepping::Replays::cells || has_cells_; }
  const Stepping& stepping() const { return stepping_; }

  /// Microseconds of the calling thread for a step, while the workers are held back.
  double push_time(double seconds) {
    double spent = 0;
    int taken = 0;
    for (; taken == 0 || spent < seconds / 10; taken += steps_while_held_) {
      engine_.wait_all();
      std::promise<void> gate;
      const std::shared_future<void> opened = gate.get_future().share();
      std::vector<Var> busy;
      for (int worker = 0; worker < workers_; ++worker) {
        busy.push_back(engine_.new_var("busy"));
        engine_.push([opened] { opened.wait(); }, {mutate(busy.back())});
      }
      const auto began = Clock::now();
      for (int i = 0; i < steps_while_held_; ++i) call();
      spent += since(began);
      gate.set_value();
      for (const Var& var : busy) engine_.retire(var);
    }
    return 1e6 * spent / taken;
  }

  /// Microseconds of a step.
  double step_time(double seconds) {
    engine_.wait_all();
    const auto began = Clock::now();
    int steps = 0;
    for (; steps == 0 || since(began) < seconds; steps += steps_in_a_row) {
      for (int i = 0; i < steps_in_a_row; ++i) call();
      engine_.wait_all();
    }
    return 1e6 * since(began) / steps;
  }

  /// Allocations of a step, of all threads: the median of several rounds. Some rounds may find caches of the engine's
  /// threads not filled yet.
  double allocations() {
    constexpr int rounds = 21;
    std::vector<double> all;
    for (int round = 0; round < rounds; ++round) {
      engine_.wait_all();
      const CountedAllocations counted;
      for (int i = 0; i < steps_in_a_row; ++i) call();
      while (engine_.stats().pending > 0) std::this_thread::yield();
      all.push_back(static_cast<double>(counted.calls()) / steps_in_a_row);
    }
    return median_of(all);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static double since(Clock::time_point began) { return std::chrono::duration<double>(Clock::now() - began).count(); }
  static constexpr int steps_in_a_row = 10;
  /// So few that the thread is not held back by pending ops; frees count besides.
  static constexpr std::uint64_t most_pending = 3000;

  std::vector<Tensor> pushed(const StaticInputs& inputs) { return {program_->step(inputs, apply_)}; }
  void call() {
    if (stepping_.replays == Stepping::Replays::step) {
      static_(program_->inputs());
    } else {
      pushed(program_->inputs());
    }
  }

  const Stepping stepping_;
  bool has_cells_ = false;
  const int workers_;
  Engine engine_;
  const program::ToldOnce once_{engine_};
  const Device host_ = host_device(engine_);
  const Tape::Apply apply_ = applied_to_new(host_);
  const std::unique_ptr<OperatorProgram> program_;
  Static static_;
  int steps_while_held_ = 1;
};

/// The variants of one program with one number of workers: one for each way to step.
struct VariantsOfSteps {
  const NamedProgram& program;
  int workers;
  std::vector<std::unique_ptr<RecordedSteps>> of;
};

std::vector<VariantsOfSteps> all_variants(const TableOptions& options) {
  const ProgramSizes sizes{options.batches.front(), options.hidden.front(), options.workload.seed};
  std::vector<VariantsOfSteps> all;
  for (const NamedProgram* const program : {&mlp_step, &fixed_lstm_step}) {
    for (const int workers : options.worker_counts) {
      VariantsOfSteps& added = all.emplace_back(VariantsOfSteps{*program, workers, {}});
      for (const Stepping& stepping : steppings) {
        added.of.push_back(std::make_unique<RecordedSteps>(*program, sizes, stepping, workers));
        if (!added.of.back()->possible()) added.of.pop_back();
      }
    }
  }
  return all;
}

}  // namespace

Result replayed_steps(const TableOptions& options) {
  const std::vector<VariantsOfSteps> all = all_variants(options);
  const double seconds = options.turn_ms / 1e3;
  Turns pushes, steps;
  for (const VariantsOfSteps& variants : all) {
    for (const auto& variant : variants.of) {
      pushes.add([&steps_of = *variant, seconds] { return steps_of.push_time(seconds); });
      steps.add([&steps_of = *variant, seconds] { return steps_of.step_time(seconds); });
    }
  }
  pushes.take(options.repetitions);
  steps.take(options.repetitions);
  Result result{
      .name = "replay",
      .title = "Training steps, pushed and replayed",
      .command = {},
      .about = "Training steps, " + std::to_string(options.hidden.front()) + " wide, on minibatches of " +
               std::to_string(options.batches.front()) +
               ", with momentum: of a perceptron of 3 layers with dropout, and of an LSTM over 16 steps, written with "
               "operators and a tape; replayed as a whole, or cell by cell as a program of variable length could; "
               "medians of repetitions in which all variants took turns. Calling: the time of the "
               "thread that pushes or replays, while the workers are held back. Ratios are to the pushed step. "
               "Allocations: calls of operator new for a step, of all threads.",
      .table = Table({{"program", 0},
                      {"workers", 0},
                      {"step", 0},
                      {"calling us", 1},
                      {"calling ratio", 3},
                      {"step us", 1},
                      {"step ratio", 3},
                      {"allocations", 1}}),
      .plots = {{.title = "Time of the calling thread for a step",
                 .x = "program, workers",
                 .y = "us",
                 .places = {},
                 .series = {},
                 .form = Plot::Form::bars,
                 .scale = Plot::Scale::logarithmic}}};
  std::vector<Plot::Series>& series = result.plots.front().series;  // of what all programs can do
  for (const Stepping& stepping : steppings) {
    if (stepping.replays != Stepping::Replays::cells) series.push_back({stepping.name, {}});
  }
  std::size_t i = 0;
  for (const VariantsOfSteps& variants : all) {
    const std::size_t base = i;
    result.plots.front().places.push_back(std::string(variants.program.name) + ", " + std::to_string(variants.workers));
    for (std::size_t k = 0; k < variants.of.size(); ++k, ++i) {
      result.table.add({variants.program.name, static_cast<double>(variants.workers), variants.of[k]->stepping().name,
                        pushes.median(i), pushes.ratio(i, base), steps.median(i), steps.ratio(i, base),
                        variants.of[k]->allocations()});
      if (k < series.size()) series[k].values.push_back(pushes.median(i));
    }
  }
  return result;
}

}  // namespace windrow::perf
