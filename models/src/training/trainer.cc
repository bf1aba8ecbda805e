// Training and evaluation of workloads.
#include "windrow/models/trainer.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <numeric>

#include "training/loss_sum.h"
#include "windrow/training/internal/deal.h"

namespace windrow {
namespace {

TrainerOptions checked(TrainerOptions options) {
  constexpr std::size_t most = 1 << 24;
  const auto refuse = [](const std::string& what) { throw MisuseError("trainer: " + what); };
  if (options.minibatch < 1 || options.minibatch > most) {
    refuse("minibatch size " + std::to_string(options.minibatch) + "; expected 1 to " + std::to_string(most));
  }
  if (options.micro_batches < 1 || options.micro_batches > most) {
    refuse(std::to_string(options.micro_batches) + " micro-batches; expected 1 to " + std::to_string(most));
  }
  if (options.local_steps < 1) refuse("0 local steps; expected 1 or more");
  if (options.local_steps > 1 && options.data_parallel.compression.form != Compression::Form::none) {
    refuse("local steps, and compression of gradients, which do not travel then; expected one of both");
  }
  if (options.local_steps > 1 && options.optimiser.accumulate > 1) {
    refuse("local steps, and gradients of " + std::to_string(options.optimiser.accumulate) +
           " minibatches for a step; expected one of both");
  }
  if (options.local_steps > 1 && options.sharded) refuse("local steps, and a sharded update; expected one of both");
  if (options.sharded && !options.group) refuse("a sharded update of one member; expected a group");
  return options;
}

double seconds_since(std::chrono::steady_clock::time_point began) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
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

/// For each member, the places of its samples in the minibatch.
std::vector<std::vector<std::size_t>> dealt_places(const Workload& workload, SampleNumbers minibatch, int members) {
  std::vector<std::int64_t> work;
  for (const std::size_t number : minibatch) work.push_back(workload.training[number].vertices);
  return deal(work, members);
}

/// The sum of the losses, and the first failure. Waits for all losses, so that no failure is reported later.
std::pair<double, std::exception_ptr> wait_for(const std::vector<Learner::Loss>& losses) {
  std::pair<double, std::exception_ptr> all;
  for (const Learner::Loss& loss : losses) {
    try {
      all.first += loss();
    } catch (const Error&) {
      if (!all.second) all.second = std::current_exception();
    }
  }
  return all;
}

Learner::Loss sum_of(std::vector<Learner::Loss> losses) {
  if (losses.size() == 1) return std::move(losses.front());
  return [losses = std::move(losses)] {
    const auto [sum, failed] = wait_for(losses);
    if (failed) std::rethrow_exception(failed);
    return sum;
  };
}

}  // namespace

std::vector<std::vector<std::size_t>> deal_minibatch(const Workload& workload, SampleNumbers minibatch, int members) {
  std::vector<std::vector<std::size_t>> dealt = dealt_places(workload, minibatch, members);
  for (std::vector<std::size_t>& of_member : dealt) {
    for (std::size_t& number : of_member) number = minibatch[number];
  }
  return dealt;
}

Trainer::Trainer(const Device& device, Workload& workload, TrainerOptions options)
    : device_(device),
      workload_(workload),
      options_(checked(std::move(options))),
      optimiser_(*workload.parameters, options_.method, options_.optimiser),
      learner_(workload.network->learner(options_.runner)),
      random_(options_.seed),
      order_(workload.training.size()),
      next_(order_.size()),
      epoch_loss_(std::make_unique<LossSum>(options_.each_loss)) {
  if (options_.group) {
    DataParallelOptions parallel = options_.data_parallel;
    parallel.sharded = options_.sharded ? &optimiser_ : nullptr;
    parallel_.emplace(*options_.group, *workload.parameters, parallel);
  }
  if (options_.averages) averages_.emplace(*workload.parameters, *options_.averages);
  std::iota(order_.begin(), order_.end(), std::size_t{0});
}

Trainer::~Trainer() = default;

std::uint64_t Trainer::failed_minibatch() const {
  return epoch_loss_->failed() != 0 ? epoch_loss_->failed() : minibatches();
}

void Trainer::require_samples() const {
  if (order_.empty()) throw MisuseError("trainer: no training samples; expected at least one");
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

/// Within the epoch: the order of the next one is not known.
void Trainer::prepare_after(SampleNumbers minibatch, std::size_t most_samples, Learner& learner) const {
  const std::size_t samples = std::min({most_samples - minibatch.size(), options_.minibatch, order_.size() - next_});
  if (samples > 0 && !parallel_ && options_.micro_batches < 2) {
    learner.prepare(SampleNumbers(order_).subspan(next_, samples));
  }
}

std::vector<std::vector<std::size_t>> Trainer::own_places(SampleNumbers minibatch) const {
  std::vector<std::size_t> own(minibatch.size());
  std::iota(own.begin(), own.end(), std::size_t{0});
  if (parallel_) {
    const Communicator& group = parallel_->communicator();
    own = dealt_places(workload_, minibatch, group.size())[static_cast<std::size_t>(group.rank())];
  }
  const std::size_t parts = std::min(options_.micro_batches, own.size());
  if (parts < 2) return {std::move(own)};
  std::vector<std::size_t> numbers;
  for (const std::size_t place : own) numbers.push_back(minibatch[place]);
  std::vector<std::vector<std::size_t>> all = dealt_places(workload_, numbers, static_cast<int>(parts));
  for (std::vector<std::size_t>& part : all) {
    for (std::size_t& place : part) place = own[place];
  }
  return all;
}

/// All parts draw the random numbers of one minibatch.
Trainer::Own Trainer::differentiate(Learner& learner, SampleNumbers minibatch) {
  Parameters& parameters = *workload_.parameters;
  const std::uint64_t before = minibatches();
  std::vector<Learner::Loss> losses;
  Own own;
  try {
    const auto micro_batches = own_places(minibatch);
    for (const std::vector<std::size_t>& places : micro_batches) {
      if (!losses.empty()) {
        parameters.keep_gradients();
        parameters.set_minibatches(before);
        if (room_is_scarce()) {
          losses.back() = [loss = losses.back()()] { return loss; };
          wait_for_room();
        }
      }
      own_.clear();
      for (const std::size_t place : places) {
        own_.push_back(minibatch[place]);
        own.labels += workload_.training[own_.back()].labels;
      }
      own.samples += places.size();
      if (parallel_ || micro_batches.size() > 1) parameters.number_samples({places.begin(), places.end()});
      losses.push_back(learner.differentiate(own_));
    }
  } catch (...) {
    parameters.number_samples({});  // the numbers apply to no other minibatch
    if (!losses.empty() && !optimiser_.between_steps()) parameters.forget_gradients();
    wait_for(losses);
    throw;
  }
  parameters.set_minibatches(before + 1);  // also if this member has no sample
  own.loss = sum_of(std::move(losses));
  return own;
}

Trainer::Then Trainer::agree(Then own) const {
  if (!parallel_) return own;
  const auto stops = parallel_->communicator().exchange(std::vector<std::int64_t>{own == Then::stop ? 1 : 0});
  return std::ranges::count(stops, 1) > 0 ? Then::stop : Then::go_on;
}

/// Per label.
double Trainer::mean_of_all(LossSum& own) const {
  own.finish();
  if (!parallel_) return own.mean();
  const auto all =
      parallel_->communicator().exchange(std::vector{std::bit_cast<std::int64_t>(own.sum()), own.labels()});
  double sum = 0;
  std::int64_t labels = 0;
  for (std::size_t i = 0; i < all.size(); i += 2) {
    sum += std::bit_cast<double>(all[i]);
    labels += all[i + 1];
  }
  return sum / static_cast<double>(std::max<std::int64_t>(labels, 1));
}

bool Trainer::room_is_scarce() const {
  if (device_.memory == nullptr) return false;
  const MemoryUse use = device_.memory->use();
  return use.limit != unlimited && (use.peak_live > use.limit / 2 || minibatches() <= 1);
}

/// The frees of a minibatch may still be pending when its step is done. But other members may wait for this one, if
/// they share the engine.
void Trainer::wait_for_room() {
  if (!parallel_) device_.engine->wait_all();
  for (std::size_t i = 0; i < workload_.parameters->size() && parallel_; ++i) {
    // Also waits for ops that read them.
    device_.engine->wait({mutate(workload_.parameters->value((*workload_.parameters)[i]).var())});
  }
}

void Trainer::step(Learner& learner, std::size_t most_samples, Pass& pass, LossSum& loss) {
  if (room_is_scarce()) {
    loss.finish();  // losses that were read hold no memory
    wait_for_room();
  }
  const SampleNumbers next = next_minibatch(most_samples);
  prepare_after(next, most_samples, learner);
  Own own = differentiate(learner, next);
  take_step(own.samples, next.size());
  if (averages_ && !between_steps()) averages_->update();
  count(pass, workload_.training, next);
  loss.add(std::move(own.loss), own.labels, minibatches());
  pass.loss = loss.mean();
}

void Trainer::take_step(std::size_t own_samples, std::size_t samples) {
  if (!parallel_) return optimiser_.step(samples);
  if (options_.local_steps == 1) {
    if (optimiser_.takes_step()) parallel_->combine(own_samples);
    return optimiser_.step(samples);
  }
  if (own_samples > 0) optimiser_.step(own_samples);
  if (++alone_ >= options_.local_steps) come_together();
}

void Trainer::come_together() {
  if (alone_ == 0) return;
  parallel_->average();
  alone_ = 0;
}

void Trainer::finish_steps() {
  if (optimiser_.between_steps()) {
    if (parallel_) parallel_->combine(0);  // the optimiser has counted the samples
    optimiser_.finish();
  }
  come_together();
}

void Trainer::wait_for_steps() {
  Parameters& parameters = *workload_.parameters;
  for (std::size_t i = 0; i < parameters.size(); ++i) device_.engine->wait(parameters.value(parameters[i]).var());
  // Evaluation can reuse the memory of gradients, unless a step still needs them.
  if (!optimiser_.between_steps()) parameters.forget_gradients();
}

Trainer::Pass Trainer::train(std::size_t samples, Batching batching) {
  require_samples();
  if (batching == Batching::unbatched && !unbatched_) unbatched_ = workload_.network->learner({.batch_rows = 1});
  Learner& learner = batching == Batching::batched ? *learner_ : *unbatched_;
  const auto began = std::chrono::steady_clock::now();
  Pass pass;
  LossSum loss(options_.each_loss);
  try {
    while (pass.samples < samples) step(learner, samples - pass.samples, pass, loss);
    come_together();
    pass.loss = mean_of_all(loss);
  } catch (...) {
    loss.give_up();
    throw;
  }
  wait_for_steps();
  pass.seconds = seconds_since(began);
  return pass;
}

Trainer::Pass Trainer::train_epoch(const Between& between) {
  require_samples();
  if (next_ == order_.size()) {
    epoch_ = {};
    epoch_loss_->begin_with(0, 0);
  }
  const auto began = std::chrono::steady_clock::now();
  const double before = epoch_.seconds;
  try {
    do {
      step(*learner_, order_.size(), epoch_, *epoch_loss_);
      epoch_.seconds = before + seconds_since(began);
    } while (next_ < order_.size() && (between_steps() || !between || agree(between(epoch_)) == Then::go_on));
    if (next_ == order_.size()) {
      if (between_steps()) {
        finish_steps();
        if (averages_) averages_->update();
      }
      ++epochs_;
    }
    epoch_.loss = mean_of_all(*epoch_loss_);
  } catch (...) {
    epoch_loss_->give_up();
    throw;
  }
  wait_for_steps();
  epoch_.seconds = before + seconds_since(began);
  return epoch_;
}

Trainer::Pass Trainer::train() {
  next_ = order_.size();
  return train(order_.size());
}

Trainer::Pass Trainer::train_some_unbatched() {
  require_samples();
  constexpr double most_vertices = 10'000, most_flops = 2e10;  // whichever comes first
  Pass all;
  count(all, workload_.training, order_);
  const double share = std::min(most_vertices / static_cast<double>(all.vertices), most_flops / (3 * all.flops));
  const auto samples = static_cast<std::size_t>(share * static_cast<double>(all.samples));
  return train(std::clamp<std::size_t>(samples, 1, all.samples), Batching::unbatched);
}

std::vector<Metric> Trainer::evaluate() {
  if (!averages_) return scores();
  averages_->swap();
  try {
    std::vector<Metric> metrics = scores();
    averages_->swap();
    return metrics;
  } catch (...) {
    averages_->swap();
    throw;
  }
}

std::vector<Metric> Trainer::scores() {
  const std::unique_ptr<Score> score = learner_->score();
  // As many samples as a micro-batch, for the same memory.
  const std::size_t most = (options_.minibatch - 1) / options_.micro_batches + 1;
  std::vector<std::size_t> numbers(workload_.validation.size());
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  for (SampleNumbers left = numbers; !left.empty();) {
    const SampleNumbers next = left.first(std::min(most, left.size()));
    score->add(next);
    left = left.subspan(next.size());
  }
  std::vector<Metric> metrics = score->metrics();
  validation_loss_ = score->loss();
  return metrics;
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
