// Data-parallel steps of a perceptron in processes, by plain operators: what perf/peers/torch_ddp.py does in PyTorch.
#include <algorithm>
#include <cmath>

#include "batching/interleaved_runs.h"
#include "comm/comm.h"
#include "windrow/comm/mpi.h"
#include "windrow/ops/apply.h"
#include "windrow/training/data_parallel.h"
#include "windrow/training/optimiser.h"

namespace windrow::perf {
namespace {

/// Numbers within +-range, the same in every program that knows these lines: the finaliser of MurmurHash3.
std::vector<float> drawn(std::uint32_t tensor, Index elements, double range) {
  std::vector<float> result;
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(elements); ++i) {
    std::uint32_t h = i + tensor * 0x9e3779b9u;
    h = (h ^ h >> 16) * 0x85ebca6bu;
    h = (h ^ h >> 13) * 0xc2b2ae35u;
    h ^= h >> 16;
    result.push_back(static_cast<float>(range * (h / 2147483648.0 - 1)));
  }
  return result;
}

/// Square layers with tanh. The loss is the squared distance to a target.
class Perceptron {
 public:
  Perceptron(MpiWorld& world, const PerceptronOptions& options)
      : options_(options),
        parameters_(host_, 1),
        input_(host_, options.batch, options.width),
        target_(host_, options.batch, options.width) {
    for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(options.layers); ++i) {
      weights_.push_back(parameters_.add("layer " + std::to_string(i), options.width, options.width, Initial::zeros()));
      const Index elements = options.width * options.width;
      weight(i).set(drawn(i, elements, std::sqrt(3.0 / static_cast<double>(options.width))));
      for (auto* of : {&gradients_, &zeros_}) {
        of->emplace_back(host_, options.width, options.width).set(std::vector<float>(std::size_t(elements)));
      }
    }
    const auto rank = static_cast<std::uint32_t>(world.rank());
    input_.set(drawn(1000 + 2 * rank, options.batch * options.width, 1));
    target_.set(drawn(1001 + 2 * rank, options.batch * options.width, 0.5));
    parallel_ = std::make_unique<DataParallel>(world.group(host_), parameters_);
    optimiser_ = std::make_unique<Optimiser>(parameters_, Method::sgd(), OptimiserOptions{.rate = perceptron_rate});
  }

  void step() {
    compute();
    optimiser_->step(parallel_->combine(samples()));
  }
  void compute_only() {
    compute();
    optimiser_->step(samples());
  }
  void communicate_only() {
    for (std::size_t i = 0; i < weights_.size(); ++i) parameters_.set_gradient(weights_[i], zeros_[i]);
    parallel_->combine(samples());
  }

  /// Seconds of a step, a mean. Pushes run one step ahead.
  double time(void (Perceptron::*taken)()) {
    parallel_->communicator().barrier();
    const double began = clock_seconds();
    for (int i = 0; i < options_.steps; ++i) {
      const Tensor before = loss_;
      (this->*taken)();
      engine_.wait(before.var());
    }
    engine_.wait_all();
    parallel_->communicator().barrier();
    return (clock_seconds() - began) / options_.steps;
  }
  /// Of the last step, for a sample of this process.
  double loss() const { return loss_.get()[0] / static_cast<double>(options_.batch); }

 private:
  const Tensor& weight(std::size_t i) const { return parameters_.value(weights_[i]); }
  std::size_t samples() const { return static_cast<std::size_t>(options_.batch); }

  void compute() {
    std::vector<Tensor> states = {input_};
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      states.push_back(apply(host_, op::tanh, {.in = {apply(host_, op::matmul, {.in = {states.back(), weight(i)}})}}));
    }
    const Tensor distances = apply(host_, op::squared_distance, {.in = {states.back(), target_}});
    loss_ = apply(host_, op::column_sum, {.in = {distances}});
    const Tensor error = apply(host_, op::sub, {.in = {states.back(), target_}});
    Tensor gradient = apply(host_, op::scale, {.in = {error}, .attributes = op::scaled_by(2)});
    for (std::size_t i = weights_.size(); i-- > 0;) {
      const Tensor slope = apply(host_, op::tanh_gradient, {.in = {states[i + 1], gradient}});
      apply(host_, op::matmul_tn, {.in = {states[i], slope}}, gradients_[i]);
      parameters_.set_gradient(weights_[i], gradients_[i]);
      if (i > 0) gradient = apply(host_, op::matmul_nt, {.in = {slope, weight(i)}});
    }
  }

  const PerceptronOptions options_;
  Engine engine_{{.workers = 1}};
  const Device host_ = host_device(engine_);
  Parameters parameters_;
  std::vector<Parameter> weights_;
  std::vector<Tensor> gradients_, zeros_;
  Tensor input_, target_, loss_ = input_;
  std::unique_ptr<DataParallel> parallel_;
  std::unique_ptr<Optimiser> optimiser_;
};

}  // namespace

std::optional<Record> measure_perceptron(const PerceptronOptions& options) {
  MpiWorld world;
  Perceptron perceptron(world, options);
  perceptron.step();
  const double first = perceptron.loss();
  for (int i = 0; i < options.steps; ++i) perceptron.step();
  const double last = perceptron.loss();
  InterleavedRuns runs;
  for (const auto step : {&Perceptron::step, &Perceptron::compute_only, &Perceptron::communicate_only}) {
    runs.add([&perceptron, step] { return 1e3 * perceptron.time(step); });
  }
  runs.run(options.repetitions);
  if (world.rank() > 0) return std::nullopt;
  return Record{{"system", "windrow"},
                {"processes", world.size()},
                {"layers", options.layers},
                {"width", options.width},
                {"batch", options.batch},
                {"step_ms", runs.median(0)},
                {"computation_ms", runs.median(1)},
                {"communication_ms", runs.median(2)},
                {"hidden", 1 - (runs.ratio(0, 2) - runs.ratio(1, 2))},
                {"loss_first", first},
                {"loss_last", last}};
}

}  // namespace windrow::perf
