// Training and evaluation of workloads.
#include "windrow/models/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>

namespace windrow {
namespace {

TrainerOptions checked(TrainerOptions options) {
  constexpr std::size_t most = 1 << 24;
  const auto refuse = [](const std::string& what) { throw MisuseError("trainer: " + what); };
  if (options.batch < 1 || options.batch > most) {
    refuse("batch " + std::to_string(options.batch) + "; expected 1 to " + std::to_string(most));
  }
  if (!std::isfinite(options.rate) || options.rate < 0) {
    refuse("rate " + std::to_string(options.rate) + "; expected a number, 0 or more");
  }
  return options;
}

std::vector<const InputGraph*> graphs_of(std::span<const Sample* const> samples) {
  std::vector<const InputGraph*> graphs;
  for (const Sample* sample : samples) graphs.push_back(&sample->graph);
  return graphs;
}

void count(Trainer::Pass& pass, std::span<const Sample* const> samples) {
  for (const Sample* sample : samples) {
    ++pass.samples;
    pass.units += sample->units;
    pass.vertices += sample->graph.vertices();
    pass.labels += std::count_if(sample->labels.begin(), sample->labels.end(), [](auto label) { return label >= 0; });
    pass.flops += sample->flops;
  }
}

/// Sums losses, each of which is waited for when the next minibatches are under way.
class LossSum {
 public:
  void add(const Minibatch& minibatch) {
    pending_.push_back(minibatch);
    if (pending_.size() > 1) take();
  }
  /// After a failure: nobody shall hear of the others later on.
  void give_up() {
    for (const Minibatch& minibatch : pending_) {
      try {
        minibatch.loss();
      } catch (const Error&) {
      }
    }
  }
  double finish() {
    while (!pending_.empty()) take();
    return sum_;
  }

 private:
  void take() {
    sum_ += pending_.front().loss();
    pending_.pop_front();
  }

  std::deque<Minibatch> pending_;
  double sum_ = 0;
};

}  // namespace

Trainer::Trainer(const Device& device, Workload& workload, TrainerOptions options)
    : device_(device),
      workload_(workload),
      options_(checked(options)),
      runner_(device, workload.function, *workload.parameters, {.schedule = options.schedule}),
      random_(options.seed) {
  if (workload.training.empty()) throw MisuseError("trainer: nothing to learn from; expected a sample or more");
  for (const Sample& sample : workload.training) order_.push_back(&sample);
  next_ = order_.size();
}

std::vector<const Sample*> Trainer::next_minibatch(std::size_t samples) {
  if (next_ == order_.size()) {
    // Not std::shuffle, which differs between libraries.
    for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random_() % i]);
    next_ = 0;
  }
  const std::size_t end = std::min(next_ + std::min(samples, options_.batch), order_.size());
  const std::vector<const Sample*> minibatch(&order_[next_], order_.data() + end);
  next_ = end;
  return minibatch;
}

Trainer::Pass Trainer::train(std::size_t samples, Batching batching) {
  if (batching == Batching::unbatched && !unbatched_) {
    unbatched_.emplace(device_, workload_.function, *workload_.parameters, RunnerOptions{.batch_rows = 1});
  }
  Runner& runner = batching == Batching::batched ? runner_ : *unbatched_;
  Parameters& parameters = *workload_.parameters;
  const auto began = std::chrono::steady_clock::now();
  Pass pass;
  LossSum loss;
  try {
    while (pass.samples < samples) {
      const std::vector<const Sample*> next = next_minibatch(samples - pass.samples);
      const Minibatch minibatch = runner.differentiate(graphs_of(next));
      parameters.sgd(options_.rate / static_cast<double>(next.size()));
      loss.add(minibatch);
      count(pass, next);
    }
    pass.loss = loss.finish() / static_cast<double>(std::max<std::int64_t>(pass.labels, 1));
  } catch (...) {
    loss.give_up();
    throw;
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) device_.engine->wait(parameters.value(parameters[i]).var());
  pass.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return pass;
}

Trainer::Pass Trainer::train() {
  next_ = order_.size();
  return train(order_.size());
}

Trainer::Pass Trainer::train_some_unbatched() {
  constexpr double most_vertices = 10'000, most_flops = 2e10;  // whichever comes first
  Pass all;
  count(all, order_);
  const double share = std::min(most_vertices / static_cast<double>(all.vertices), most_flops / (3 * all.flops));
  const auto samples = static_cast<std::size_t>(share * static_cast<double>(all.samples));
  return train(std::clamp<std::size_t>(samples, 1, all.samples), Batching::unbatched);
}

std::vector<Figure> Trainer::evaluate() {
  const std::unique_ptr<Score> score = workload_.score();
  std::vector<const Sample*> samples;
  for (const Sample& sample : workload_.unseen) {
    samples.push_back(&sample);
    if (samples.size() < options_.batch && &sample != &workload_.unseen.back()) continue;
    score->add(runner_.run(graphs_of(samples)), samples);
    samples.clear();
  }
  return score->figures();
}

RunnerStats Trainer::stats(Batching batching) const {
  if (batching == Batching::batched) return runner_.stats();
  return unbatched_ ? unbatched_->stats() : RunnerStats{};
}

}  // namespace windrow
