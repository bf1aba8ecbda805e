// A multi-layer perceptron that is trained by plain operators: a few ops at a time, each on large tensors, so that more
// than one worker helps only by loops inside ops.
#include <chrono>

#include "batching/tables.h"
#include "batching/turns.h"
#include "windrow/ops/apply.h"
#include "windrow/ops/random.h"

namespace windrow::perf {
namespace {

constexpr int square_layers = 3;

/// Three square layers with tanh; the loss is half the squared distance to a target.
class Mlp {
 public:
  Mlp(int workers, Index batch, Index width, std::uint64_t seed)
      : engine_({.policy = Policy::pool, .workers = workers}),
        input_(host_, batch, width),
        target_(host_, batch, width) {
    Generator generator(engine_, seed);
    generator.uniform(input_, -1, 1);
    generator.uniform(target_, -1, 1);
    for (int i = 0; i < square_layers; ++i)
      generator.uniform(weights_.emplace_back(host_, width, width), -0.05f, 0.05f);
  }

  /// A turn, in samples a second.
  double train(double seconds) {
    engine_.wait_all();
    const auto began = Clock::now();
    int steps = 0;
    for (; steps == 0 || since(began) < seconds; ++steps) {
      step();
      engine_.wait_all();
    }
    return static_cast<double>(steps * input_.rows()) / since(began);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static double since(Clock::time_point began) { return std::chrono::duration<double>(Clock::now() - began).count(); }

  void step() {
    std::vector<Tensor> states = {input_};
    for (const Tensor& weights : weights_) {
      states.push_back(apply(host_, op::tanh, {.in = {apply(host_, op::matmul, {.in = {states.back(), weights}})}}));
    }
    Tensor gradient = apply(host_, op::sub, {.in = {states.back(), target_}});
    for (std::size_t i = square_layers; i-- > 0;) {
      const Tensor slope = apply(host_, op::tanh_gradient, {.in = {states[i + 1], gradient}});
      const Tensor of_weights = apply(host_, op::matmul_tn, {.in = {states[i], slope}});
      if (i > 0) gradient = apply(host_, op::matmul_nt, {.in = {slope, weights_[i]}});
      apply(host_, op::sgd, {.in = {of_weights}, .attributes = op::at_rate(1e-4), .write = Write::add}, weights_[i]);
    }
  }

  Engine engine_;
  const program::ToldOnce once_{engine_};
  const Device host_ = host_device(engine_);
  Tensor input_, target_;
  std::vector<Tensor> weights_;
};

}  // namespace

Result large_tensors(const TableOptions& options) {
  const Index batch = options.batches.front(), width = options.hidden.front();
  std::vector<std::unique_ptr<Mlp>> all;
  Turns turns;
  for (const int workers : options.worker_counts) {
    Mlp& mlp = *all.emplace_back(std::make_unique<Mlp>(workers, batch, width, options.workload.seed));
    turns.add([&mlp, seconds = options.turn_ms / 1e3] { return mlp.train(seconds); });
  }
  turns.take(options.repetitions);
  Result result{.name = "mlp",
                .title = "Operators on large tensors, by number of workers",
                .command = {},
                .about = "Training a perceptron of " + std::to_string(square_layers) + " layers, " +
                         std::to_string(width) + " wide, by plain operators on minibatches of " +
                         std::to_string(batch) +
                         "; medians of repetitions in which all variants took turns. Workers without an op help in "
                         "the loops of other ops.",
                .table = Table({{"workers", 0}, {"samples/s", 0}, {"speedup", 2, " x"}}),
                .plots = {{.title = "samples/s",
                           .x = "workers",
                           .y = "samples/s",
                           .places = {},
                           .series = {{"mlp", {}}},
                           .form = Plot::Form::bars,
                           .scale = Plot::Scale::linear}}};
  for (std::size_t i = 0; i < all.size(); ++i) {
    result.table.add({static_cast<double>(options.worker_counts[i]), turns.median(i), turns.ratio(i, 0)});
    result.plots.front().places.push_back(std::to_string(options.worker_counts[i]));
    result.plots.front().series[0].values.push_back(turns.median(i));
  }
  return result;
}

}  // namespace windrow::perf
