#include "program/options/training_flags.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "program/options/flags.h"
#include "program/output/text.h"

namespace windrow::program {
namespace {

bool has_momentum(const TrainingFlags& flags) { return flags.method == "momentum" || flags.method == "nesterov"; }
bool lowers_rate(const TrainingFlags& flags) {
  return flags.rate_schedule == "step" || flags.rate_schedule == "plateau";
}

Method method_of(const TrainingFlags& flags) {
  using Form = Method::Momentum::Form;
  if (flags.method == "sgd") return Method::sgd();
  if (flags.method == "adagrad") return Method::adagrad();
  if (flags.method == "rmsprop") return Method::rmsprop();
  if (flags.method == "adam") return Method::adam();
  return Method::momentum(
      {.momentum = flags.momentum, .form = flags.method == "nesterov" ? Form::nesterov : Form::heavy_ball});
}

constexpr double adagrad_rate = 0.05, adaptive_rate = 0.001;

/// Momentum adds up about ten steps. The steps of the other methods do not grow with the gradient.
double rate_of(const TrainingFlags& flags, const WorkloadKind& kind) {
  if (flags.rate != 0) return flags.rate;
  if (flags.method == "sgd") return kind.learning_rate;
  if (flags.method == "adagrad") return adagrad_rate;
  if (flags.method == "rmsprop" || flags.method == "adam") return adaptive_rate;
  return kind.learning_rate * (1 - flags.momentum);
}

/// `epoch`: the number of steps of an epoch.
LearningRate schedule_of(const TrainingFlags& flags, double rate, std::uint64_t epoch, std::uint64_t epochs) {
  if (flags.rate_schedule == "step") {
    return LearningRate::steps(rate, epoch * static_cast<std::uint64_t>(flags.rate_epochs), flags.rate_factor);
  }
  if (flags.rate_schedule == "cosine") {
    const std::uint64_t all = epoch * epochs;
    return LearningRate::cosine(rate, std::max<std::uint64_t>(all - std::min(flags.warm_up, all), 1));
  }
  return rate;
}

}  // namespace

void add_training_flags(CLI::App& command, TrainingFlags& to) {
  flag(command, "--optimiser,--optimizer,--optim", to.method, "Optimisation method",
       one_of({"sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam"}));
  flag(
      command, "--rate,--lr,--learning-rate", to.rate,
      formatted("Learning rate (applied to the loss per sample); by default %g with adagrad, %g with rmsprop and adam, "
                "the model's with sgd, and the model's times 1 - momentum with momentum and nesterov",
                adagrad_rate, adaptive_rate),
      positive_number())
      ->default_str("see below");
  flag(command, "--momentum", to.momentum, "Coefficient of momentum and nesterov", fraction());
  flag(command, "--penalty", to.penalty, "L2 penalty: adds this times the value to each gradient", number());
  flag(command, "--decay", to.decay, "Decoupled weight decay, as in AdamW", number());
  flag(command, "--clip-norm", to.clip_norm, "Clip the global norm of the gradients to this; 0: no clipping", number());
  flag(command, "--clip-value", to.clip_value, "Clip each element of the gradient to this magnitude; 0: no clipping",
       number());
  flag(command, "--accumulate", to.accumulate, "Minibatches per step", whole_number(1, 1 << 20));
  flag(command, "--micro-batches", to.micro_batches, "Split each minibatch into N sequential parts, to save memory",
       whole_number(1, 1 << 20));
  flag(command, "--rate-schedule", to.rate_schedule, "Learning-rate schedule",
       one_of({"constant", "step", "cosine", "plateau"}));
  flag(command, "--rate-factor", to.rate_factor, "For step and plateau: multiplies the learning rate", factor());
  flag(command, "--rate-epochs", to.rate_epochs,
       "For step: epochs between changes; for plateau: epochs without a better score before a change",
       whole_number(1, 1 << 20));
  flag(command, "--warm-up", to.warm_up, "Steps of linear learning-rate warm-up", whole_number(0, 1 << 30));
  flag(command, "--average", to.average,
       "Decay of averages of the parameters over steps, which are then scored; 0: scores the last parameters",
       fraction());
}

void require_used(const TrainingFlags& flags) {
  const TrainingFlags unused;
  if (flags.momentum != unused.momentum && !has_momentum(flags)) {
    throw MisuseError("--momentum with --optimiser " + flags.method + "; expected momentum or nesterov");
  }
  if (lowers_rate(flags)) return;
  for (const auto& [name, given] : {std::pair("--rate-factor", flags.rate_factor != unused.rate_factor),
                                    std::pair("--rate-epochs", flags.rate_epochs != unused.rate_epochs)}) {
    if (given) {
      throw MisuseError(std::string(name) + " with --rate-schedule " + flags.rate_schedule +
                        "; expected step or plateau");
    }
  }
}

void set_training(TrainerOptions& options, const TrainingFlags& flags, const Workload& workload, std::uint64_t epochs) {
  const std::uint64_t samples_a_step = options.minibatch * flags.accumulate;
  const std::uint64_t epoch = (workload.training.size() + samples_a_step - 1) / samples_a_step;
  const auto limit = [](double flag) { return flag == 0 ? std::numeric_limits<double>::infinity() : flag; };
  options.micro_batches = flags.micro_batches;
  options.method = method_of(flags);
  options.optimiser = {
      .rate = schedule_of(flags, rate_of(flags, *workload.kind), std::max<std::uint64_t>(epoch, 1), epochs),
      .penalty = flags.penalty,
      .decay = flags.decay,
      .clip_norm = limit(flags.clip_norm),
      .clip_value = limit(flags.clip_value),
      .accumulate = flags.accumulate};
  if (flags.average > 0) options.averages = AveragesOptions{.decay = flags.average};
  if (flags.warm_up > 0) {
    options.optimiser.rate = LearningRate::warm_up(flags.warm_up, std::move(*options.optimiser.rate));
  }
}

Record training_record(const TrainingFlags& flags, const WorkloadKind& kind, std::uint64_t epochs) {
  Record record;
  record.set("rate", rate_of(flags, kind)).set("penalty", flags.penalty).set("decay", flags.decay);
  record.set("clip-norm", flags.clip_norm).set("clip-value", flags.clip_value).set("accumulate", flags.accumulate);
  record.set("micro-batches", flags.micro_batches);
  record.set("rate-schedule", flags.rate_schedule).set("warm-up", flags.warm_up).set("average", flags.average);
  if (has_momentum(flags)) record.set("momentum", flags.momentum);
  if (flags.rate_schedule == "cosine") record.set("epochs", epochs);
  if (lowers_rate(flags)) {
    record.set("rate-factor", flags.rate_factor).set("rate-epochs", flags.rate_epochs);
  }
  return record;
}

Scores::Scores(const TrainingFlags& flags) {
  if (flags.rate_schedule != "plateau") return;
  plateau_ = Plateau{.factor = flags.rate_factor, .patience = static_cast<std::uint64_t>(flags.rate_epochs) - 1};
}

void Scores::report(const Metric& score, Optimiser& optimiser) {
  const double measure = score.unit == Metric::Unit::fraction ? 1 - score.value : score.value;
  without_ = best_ && measure >= *best_ ? without_ + 1 : 0;
  best_ = std::min(best_.value_or(measure), measure);
  if (plateau_) optimiser.scale_rate(plateau_->report(measure));
}

Record Scores::record() const {
  Record record;
  record.set("without_improvement", without_);
  if (best_) record.set("best", *best_);
  if (!plateau_) return record;
  record.set("plateau", Record()
                            .set("best", plateau_->best)
                            .set("reports", plateau_->reports)
                            .set("without_improvement", plateau_->without_improvement)
                            .set("lowered", plateau_->lowered));
  return record;
}

void Scores::set(const Record& record) {
  without_ = static_cast<int>(record.at("without_improvement").integer());
  if (record.contains("best")) best_ = record.at("best").number();
  if (!plateau_ || !record.contains("plateau")) return;
  const Record& plateau = record.at("plateau").record();
  plateau_->best = plateau.at("best").number();
  plateau_->reports = plateau.at("reports").count();
  plateau_->without_improvement = plateau.at("without_improvement").count();
  plateau_->lowered = plateau.at("lowered").number();
}

}  // namespace windrow::program
