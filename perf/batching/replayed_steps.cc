// A training step of a small multi-layer perceptron with dropout and momentum, pushed by its body each time, and
// replayed by a Static in each order. Two figures: the time of the calling thread, while nothing runs; and the time of
// whole steps, one after the other.
#include <chrono>
#include <future>

#include "batching/tables.h"
#include "batching/turns.h"
#include "windrow/ops/random.h"
#include "windrow/ops/static.h"
#include "windrow/ops/tape.h"

namespace windrow::perf {
namespace {

enum class Stepping { pushed, parallel, serial, breadth_first };
constexpr std::pair<Stepping, const char*> steppings[] = {{Stepping::pushed, "pushed"},
                                                          {Stepping::parallel, "replayed, parallel"},
                                                          {Stepping::serial, "replayed, serial"},
                                                          {Stepping::breadth_first, "replayed, breadth first"}};

class RecordedMlp {
 public:
  RecordedMlp(Stepping stepping, int workers, Index batch, Index width, std::uint64_t seed)
      : stepping_(stepping),
        workers_(workers),
        engine_({.policy = Policy::pool, .workers = workers}),
        draws_(engine_, seed),
        numbers_(host_, 1, StepNumbers::count, "numbers"),
        static_(host_, [this](const StaticInputs& call) { return step(call); }, {.order = order()}) {
    const StepNumbers numbers{.rate = 1e-4f, .scale = 1 / static_cast<float>(batch), .first = 0.9f};
    numbers_.set({numbers.begin(), numbers.begin() + StepNumbers::count});
    inputs_.in.emplace_back(host_, batch, width);
    draws_.uniform(inputs_.in[0], -1, 1);
    inputs_.indices.emplace_back(host_, batch, 1);
    inputs_.indices[0].set(std::vector<std::int32_t>(static_cast<std::size_t>(batch), 1));
    for (int layer = 0; layer < 3; ++layer) {
      for (const Index rows : {width, Index{1}}) {
        values_.emplace_back(host_, rows, width);
        draws_.uniform(values_.back(), -0.1f, 0.1f);
        states_.emplace_back(host_, rows, width);
        states_.back().set(std::vector<float>(static_cast<std::size_t>(rows * width), 0));
      }
    }
  }

  /// Microseconds of the calling thread for a step, while the workers are held back.
  double push_time(double seconds) {
    constexpr int steps = 50;  // so few that the thread is not held back by pending ops
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
      for (int i = 0; i < steps; ++i) call();
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
    for (; steps == 0 || since(began) < seconds; steps += 10) {
      for (int i = 0; i < 10; ++i) call();
      engine_.wait_all();
    }
    return 1e6 * since(began) / steps;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static double since(Clock::time_point began) { return std::chrono::duration<double>(Clock::now() - began).count(); }

  StaticOptions::Order order() const {
    if (stepping_ == Stepping::serial) return StaticOptions::Order::serial;
    return stepping_ == Stepping::breadth_first ? StaticOptions::Order::breadth_first : StaticOptions::Order::parallel;
  }
  void call() {
    if (stepping_ == Stepping::pushed) {
      step(inputs_);
    } else {
      static_(inputs_);
    }
  }

  std::vector<Tensor> step(const StaticInputs& call) {
    Tape tape(host_);
    for (const Tensor& value : values_) tape.watch(value);
    Tensor x = call.in[0];
    for (std::size_t k = 0; k < values_.size(); k += 2) {
      x = tape.apply(op::add_bias, {.in = {tape.apply(op::matmul, {.in = {x, values_[k]}}), values_[k + 1]}});
      if (k + 2 == values_.size()) break;
      const IntTensor keys(host_, x.rows(), 3, "keys");
      draws_.dropout_keys(keys);
      x = tape.apply(op::relu, {.in = {x}});
      x = tape.apply(op::dropout, {.in = {x}, .indices = {keys}, .attributes = op::dropout_by(0.25, 3, 0)});
    }
    const Tensor losses = tape.apply(op::softmax_cross_entropy, {.in = {x}, .indices = call.indices});
    tape.backward(losses);
    for (std::size_t k = 0; k < values_.size(); ++k) {
      apply(host_, op::momentum_step,
            {.in = {*tape.gradient(values_[k]), numbers_}, .write = Write::add, .states = {states_[k]}}, values_[k]);
    }
    return {losses};
  }

  const Stepping stepping_;
  const int workers_;
  Engine engine_;
  const program::ToldOnce once_{engine_};
  const Device host_ = host_device(engine_);
  Generator draws_;
  const Tensor numbers_;
  std::vector<Tensor> values_, states_;
  StaticInputs inputs_;
  Static static_;
};

}  // namespace

Result replayed_steps(const TableOptions& options) {
  const Index batch = options.batches.front(), width = options.hidden.front();
  std::vector<std::unique_ptr<RecordedMlp>> all;
  Turns pushes, steps;
  for (const int workers : options.worker_counts) {
    for (const auto& [stepping, name] : steppings) {
      RecordedMlp& mlp =
          *all.emplace_back(std::make_unique<RecordedMlp>(stepping, workers, batch, width, options.workload.seed));
      const double seconds = options.turn_ms / 1e3;
      pushes.add([&mlp, seconds] { return mlp.push_time(seconds); });
      steps.add([&mlp, seconds] { return mlp.step_time(seconds); });
    }
  }
  pushes.take(options.repetitions);
  steps.take(options.repetitions);
  Result result{
      .name = "replay",
      .title = "Training steps, pushed and replayed",
      .command = {},
      .about = "A training step of a perceptron of 3 layers, " + std::to_string(width) +
               " wide, with dropout and momentum, on minibatches of " + std::to_string(batch) +
               "; medians of repetitions in which all variants took turns. Calling: the time of the thread "
               "that pushes or replays, while the workers are held back. Ratios are to the pushed step.",
      .table = Table(
          {{"workers", 0}, {"step", 0}, {"calling us", 1}, {"calling ratio", 3}, {"step us", 1}, {"step ratio", 3}}),
      .plots = {{.title = "Time of the calling thread for a step",
                 .x = "workers",
                 .y = "us",
                 .places = {},
                 .series = {},
                 .form = Plot::Form::bars,
                 .scale = Plot::Scale::linear}}};
  for (const auto& [stepping, name] : steppings) result.plots.front().series.push_back({name, {}});
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t variant = i % std::size(steppings), base = i - variant;
    const int workers = options.worker_counts[i / std::size(steppings)];
    result.table.add({static_cast<double>(workers), steppings[variant].second, pushes.median(i), pushes.ratio(i, base),
                      steps.median(i), steps.ratio(i, base)});
    if (variant == 0) result.plots.front().places.push_back(std::to_string(workers));
    result.plots.front().series[variant].values.push_back(pushes.median(i));
  }
  return result;
}

}  // namespace windrow::perf
