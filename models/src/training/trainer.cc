// Training and evaluation of workloads.
#include "windrow/models/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <numeric>

namespace windrow {
namespace {

TrainerOptions checked(TrainerOptions options) {
  constexpr std::size_t most = 1 << 24;
  const auto refuse = [](const std::string& what) { throw MisuseError("trainer: " + what); };
  if (options.minibatch < 1 || options.minibatch > most) {
    refuse("minibatch size " + std::to_string(options.minibatch) + "; expected 1 to " + std::to_string(most));
  }
  return options;
}

void count(Trainer::Pass& pass, const std::vector<Sample>& samples, SampleNumbers numbers) {
  for (const std::size_t number : numbers) {
    const Sample& sample = samples[number];
    ++pass.samples;
    pass.units += sample.units;
    pass.vertices += sample.vertices;
    pass.labels += sample.labels;
    pass.flops += sample.flops;
  }
}

/// Sums losses. Waits for a loss only when the next minibatch was pushed.
class LossSum {
 public:
  void add(Learner::Loss loss) {
    pending_.push_back(std::move(loss));
    if (pending_.size() > 1) take();
  }
  /// After a failure: waits for the other losses, so that their failures are not reported later.
  void give_up() {
    for (const Learner::Loss& loss : pending_) {
      try {
        loss();
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
    sum_ += pending_.front()();
    pending_.pop_front();
  }

  std::deque<Learner::Loss> pending_;
  double sum_ = 0;
};

}  // namespace

Trainer::Trainer(const Device& device, Workload& workload, TrainerOptions options)
    : device_(device),
      workload_(workload),
      options_(checked(std::move(options))),
      optimiser_(*workload.parameters, options_.method, options_.optimiser),
      learner_(workload.network->learner(options_.runner)),
      random_(options_.seed),
      order_(workload.training.size()),
      next_(order_.size()) {
  if (order_.empty()) throw MisuseError("trainer: no training samples; expected at least one");
  std::iota(order_.begin(), order_.end(), std::size_t{0});
}

SampleNumbers Trainer::next_minibatch(std::size_t samples) {
  if (next_ == order_.size()) {
    // Not std::shuffle, which differs between libraries.
    for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random_() % i]);
    next_ = 0;
  }
  const std::size_t begin = next_;
  next_ = std::min(next_ + std::min(samples, options_.minibatch), order_.size());
  return SampleNumbers(order_).subspan(begin, next_ - begin);
}

Trainer::Pass Trainer::train(std::size_t samples, Batching batching) {
  if (batching == Batching::unbatched && !unbatched_) unbatched_ = workload_.network->learner({.batch_rows = 1});
  Learner& learner = batching == Batching::batched ? *learner_ : *unbatched_;
  const auto began = std::chrono::steady_clock::now();
  Pass pass;
  LossSum loss;
  try {
    while (pass.samples < samples) {
      const SampleNumbers next = next_minibatch(samples - pass.samples);
      loss.add(learner.differentiate(next));
      optimiser_.step(next.size());
      count(pass, workload_.training, next);
    }
    pass.loss = loss.finish() / static_cast<double>(std::max<std::int64_t>(pass.labels, 1));
  } catch (...) {
    loss.give_up();
    throw;
  }
  Parameters& parameters = *workload_.parameters;
  for (std::size_t i = 0; i < parameters.size(); ++i) device_.engine->wait(parameters.value(parameters[i]).var());
  parameters.forget_gradients();  // evaluation can reuse their memory
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
  count(all, workload_.training, order_);
  const double share = std::min(most_vertices / static_cast<double>(all.vertices), most_flops / (3 * all.flops));
  const auto samples = static_cast<std::size_t>(share * static_cast<double>(all.samples));
  return train(std::clamp<std::size_t>(samples, 1, all.samples), Batching::unbatched);
}

std::vector<Metric> Trainer::evaluate() {
  const std::unique_ptr<Score> score = learner_->score();
  std::vector<std::size_t> numbers(workload_.validation.size());
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  for (SampleNumbers left = numbers; !left.empty();) {
    const SampleNumbers next = left.first(std::min(options_.minibatch, left.size()));
    score->add(next);
    left = left.subspan(next.size());
  }
  return score->metrics();
}

std::vector<std::string> Trainer::metric_names() {
  std::vector<std::string> names;
  for (const Metric& metric : learner_->score()->metrics()) names.push_back(metric.name);
  return names;
}

RunnerStats Trainer::stats(Batching batching) const {
  if (batching == Batching::batched) return learner_->stats();
  return unbatched_ ? unbatched_->stats() : RunnerStats{};
}

}  // namespace windrow
