#include "windrow/training/optimiser.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "checked.h"
#include "optimiser_states.h"
#include "shards.h"
#include "windrow/engine/engine.h"
#include "windrow/memory/buffer.h"
#include "windrow/ops/apply.h"
#include "windrow/ops/static.h"

namespace windrow {
namespace {

Method checked(Method method) {
  if (method.step == nullptr || !method.step->updates) {
    throw MisuseError("optimiser: method '" + method.name + "' has no operator that updates; expected one");
  }
  if (method.step_rows != nullptr && method.step_rows->states != method.step->states) {
    throw MisuseError("optimiser: the operators of method '" + method.name + "' differ in their states");
  }
  return method;
}

OptimiserOptions checked(OptimiserOptions options) {
  require_not_negative("optimiser: penalty", options.penalty);
  require_not_negative("optimiser: decay", options.decay);
  require_limit("optimiser: clip_value", options.clip_value);
  require_limit("optimiser: clip_norm", options.clip_norm);
  require(options.accumulate > 0, "optimiser: accumulate", 0, "1 or more");
  return options;
}

}  // namespace

class Optimiser::Impl {
 public:
  Impl(Parameters& parameters, Method method, OptimiserOptions options)
      : parameters_(parameters),
        method_(checked(std::move(method))),
        options_(checked(std::move(options))),
        rate_(options_.rate.value_or(LearningRate(method_.rate))),
        counts_(std::make_shared<StepCounts>(parameters.device().engine, "optimiser")),
        states_(parameters, method_, counts_) {}

  void set(const Parameter& parameter, const ParameterOptions& options) {
    require_not_negative("optimiser: rate_factor", options.rate_factor);
    require_not_negative("optimiser: penalty_factor", options.penalty_factor);
    require_not_negative("optimiser: decay_factor", options.decay_factor);
    as_float("optimiser: penalty times penalty_factor:", options_.penalty * options.penalty_factor);
    as_float("optimiser: decay times decay_factor:", options_.decay * options.decay_factor);
    const std::size_t number = number_of(parameters_, parameter);
    if (of_parameters_.size() <= number) of_parameters_.resize(number + 1);
    of_parameters_[number] = options;
  }

  void scale_rate(double factor) {
    require_not_negative("optimiser: factor of the rate", factor);
    engine().push([counts = counts_, factor] { counts->rate_scale = factor; }, {mutate(counts_->var())},
                  {.name = "scale rate"});
  }

  void step(std::size_t samples, std::source_location from) {
    require(samples > 0, "optimiser: a step of samples:", 0, "1 or more");
    if (options_.accumulate > 1) refuse_in_recording("Optimiser::step() with `accumulate`");
    if (parameters_.non_finite() == NonFinite::skip) refuse_in_recording("Optimiser::step() with NonFinite::skip");
    if (shards_) refuse_in_recording("Optimiser::step() with a sharded update");
    const bool takes = takes_step();
    takes ? require_combined() : parameters_.keep_gradients(from);
    samples_ += samples;
    ++collected_;
    if (takes) take_step(from);
  }
  void finish(std::source_location from) {
    if (collected_ == 0) return;
    refuse_in_recording("Optimiser::finish()");
    require_combined();
    take_step(from);
    parameters_.forget_gradients();  // they are kept no longer
  }

  Progress progress() const {
    engine().wait(counts_->var());
    return {counts_->steps, counts_->rate_scale, counts_->others(parameters_, counts_->steps)};
  }
  double rate() const {
    engine().wait(counts_->var());
    return rate_(counts_->steps) * counts_->rate_scale;
  }
  double last_norm(std::source_location from) const {
    if (!last_norm_ || !std::isfinite(options_.clip_norm)) {
      throw MisuseError("optimiser: last_norm() " +
                        std::string(last_norm_ ? "without clip_norm" : "before the first step") +
                        "; expected a step that limits the norm");
    }
    double sum = 0;
    for (const Tensor& square : last_norm_->squares) {
      const std::vector<float> of = square.get(from);  // see op::squared_norm
      sum += std::isfinite(of[0]) ? static_cast<double>(of[0]) : static_cast<double>(of[1]) * 0x1p192;
    }
    return std::sqrt(sum) * last_norm_->scale;
  }
  bool takes_step() const { return collected_ + 1 >= options_.accumulate; }
  bool between_steps() const { return collected_ > 0; }
  const Method& method() const { return method_; }

  std::vector<OptimiserTensor> tensors() const { return states_.named(states_.all()); }
  std::vector<OptimiserTensor> tensors_of_all() const {
    if (!shards_) return tensors();
    const auto make = [this](std::size_t number, std::size_t k) { return states_.made_like(number, k); };
    return states_.named(shards_->collect(states_.all(), make));
  }

  void restore(const Progress& progress, const std::vector<std::string>& names) {
    const std::vector<std::uint64_t> steps = StepCounts::all(parameters_, progress.steps, progress.steps_of);
    std::vector<std::size_t> numbers;
    for (const std::string& name : names) numbers.push_back(states_.restore(name));
    for (const std::size_t number : numbers) {
      if (updates(number)) states_.make(number);
    }
    engine().push(
        [counts = counts_, progress, steps] {
          counts->steps = progress.steps;
          counts->rate_scale = progress.rate_scale;
          counts->of_parameters = steps;
        },
        {mutate(counts_->var())}, {.name = "restore optimiser"});
  }

  bool is_of(const Parameters& parameters) const { return &parameters == &parameters_; }
  void shard(std::shared_ptr<const Shards> shards) {
    shards_ = std::move(shards);
    for (std::size_t number = 0; number < parameters_.size(); ++number) {
      if (!updates(number)) states_.drop(number);
    }
  }

 private:
  /// A parameter that a step changes: by its whole gradient, or by rows. If another member takes the step, the gradient
  /// only tells which of the two, and which rows.
  struct Changed {
    std::size_t number;
    Gradient gradient;

    const Tensor& tensor() const { return gradient.all ? *gradient.all : gradient.rows.front().rows; }
  };

  Engine& engine() const { return *parameters_.device().engine; }
  ParameterOptions options_of(std::size_t number) const {
    return number < of_parameters_.size() ? of_parameters_[number] : ParameterOptions{};
  }
  /// Whether this member takes the steps of the parameter.
  bool updates(std::size_t number) const { return !shards_ || shards_->owned(number); }
  /// The parameters that are not frozen and have a gradient. Makes their states, before the step is counted.
  std::vector<Changed> changed_parameters(std::source_location from) {
    std::vector<Changed> changed;
    for (std::size_t number = 0; number < parameters_.size(); ++number) {
      if (parameters_.frozen(parameters_[number])) continue;
      Gradient gradient = parameters_.summed_gradient(parameters_[number], from);
      if (!gradient.all && gradient.rows.empty()) continue;
      if (!gradient.all && (options_.tables == OptimiserOptions::Tables::dense || method_.step_rows == nullptr)) {
        gradient.all = updates(number) ? all_rows(gradient.rows.front(), parameters_[number].type().rows, from)
                                       : parameters_.value(parameters_[number]);  // only says that all rows change
      }
      if (!gradient.all) states_.change_by_rows(number);
      if (updates(number)) states_.make(number);
      changed.push_back({number, std::move(gradient)});
    }
    return changed;
  }
  Tensor all_rows(const Gradient::Rows& some, Rows rows, std::source_location from) const {
    return apply(parameters_.device(), op::scatter_rows,
                 {.in = {some.rows}, .indices = {some.of}, .attributes = op::to_rows(rows)}, from);
  }

  void require_combined() const {
    if (!shards_ || shards_->take_combined()) return;
    throw MisuseError(
        "Optimiser: a sharded step of gradients that were not combined; expected DataParallel::combine() before it");
  }

  void take_step(std::source_location from) {
    const std::vector<Changed> changed = changed_parameters(from);
    const double scale = 1 / static_cast<double>(std::exchange(samples_, 0));
    const Tensor numbers = limited(push_numbers(scale, changed, from), scale, changed, from);
    collected_ = 0;
    std::vector<OptimiserStates::Step> steps;
    for (std::size_t i = 0; i < changed.size(); ++i) {
      const auto row = static_cast<Index>(i);
      if (!updates(changed[i].number)) continue;
      steps.push_back({changed[i].number, changed[i].gradient, numbers.row_range(row, row + 1)});
    }
    states_.step(steps, from);
    if (shards_) share(changed, from);
  }

  /// Pushes the op that begins the step: it counts it, and decides the numbers, a row for each parameter that changes.
  Tensor push_numbers(double scale, const std::vector<Changed>& changed, std::source_location from) {
    const NextStep next = parameters_.next_step(from);
    const Tensor numbers(parameters_.device(), static_cast<Index>(changed.size()), StepNumbers::count, "step");
    std::vector<Access> accesses = next.accesses();
    accesses.push_back(mutate(counts_->var()));
    struct One {
      std::size_t number;
      ParameterOptions options;
    };
    std::vector<One> all;
    for (const Changed& one : changed) all.push_back({one.number, options_of(one.number)});
    const auto write = [=, counts = counts_, count = parameters_.size(), options = options_, rate_of = rate_,
                        coefficients = method_.coefficients](const Matrix<float>& to) {
      const bool skipped = next.skipped();
      const double rate = rate_of(counts->steps) * counts->rate_scale;
      std::vector<StepNumbers> rows;
      for (const auto& [number, factors] : all) {
        rows.push_back({.rate = as_float("optimiser: a learning rate of", rate * factors.rate_factor),
                        .scale = skipped ? 0 : static_cast<float>(scale),
                        .most = static_cast<float>(options.clip_value),
                        .most_norm = static_cast<float>(options.clip_norm),
                        .penalty = static_cast<float>(options.penalty * factors.penalty_factor),
                        .decay = static_cast<float>(options.decay * factors.decay_factor)});
      }
      counts->of_parameters.resize(std::max(counts->of_parameters.size(), count), 0);
      if (!skipped) ++counts->steps;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        std::uint64_t& steps = counts->of_parameters[all[i].number];
        if (!skipped) ++steps;
        if (coefficients) coefficients(std::max<std::uint64_t>(steps, 1), rows[i]);
        std::copy_n(rows[i].begin(), StepNumbers::count, to.row(static_cast<Index>(i)));
      }
    };
    numbers.fill(write, std::move(accesses), {.name = "optimiser step", .pushed_at = from});
    // A failed minibatch fails the whole step, but not the progress, so a checkpoint can still restore that.
    std::vector<Access> ends = next.ends();
    if (ends.empty()) return numbers;
    ends.push_back(mutate(numbers.var()));
    engine().push([next] {}, ends, {.name = "optimiser step", .lane = numbers.lane(), .pushed_at = from});
    return numbers;
  }

  /// The numbers, after the norm was limited.
  Tensor limited(const Tensor& numbers, double scale, const std::vector<Changed>& changed, std::source_location from) {
    last_norm_ = {{}, scale};
    if (changed.empty() || !std::isfinite(options_.clip_norm)) return numbers;
    take_norms(changed, from);
    Operands operands{.in = last_norm_->squares};
    operands.in.insert(operands.in.begin(), numbers);
    return apply(parameters_.device(), op::limit_norm, operands, from);
  }

  /// Computes the squared norms of the gradients. If the gradients are divided among members, each norm comes from one
  /// member and the others add 0, so its bits do not change.
  void take_norms(const std::vector<Changed>& changed, std::source_location from) {
    if (shards_) {
      make_norms();
      squared_norms_.front().set(std::vector<float>(2 * parameters_.size(), 0), from);
    }
    for (const Changed& one : changed) {
      last_norm_->squares.push_back(norm_of(one.number));
      if (!updates(one.number)) continue;
      apply(parameters_.device(), op::squared_norm, {.in = {one.tensor()}}, last_norm_->squares.back(), from);
    }
    if (shards_) shards_->add_up(squared_norms_.front(), from);
  }
  /// These tensors are kept, so that captured steps and replays of a Static write the ones that last_norm() reads.
  void make_norms() {
    const auto rows = static_cast<Index>(parameters_.size());
    if (shards_ && !squared_norms_.empty() && squared_norms_.front().rows() == rows) return;
    const Unrecorded once;
    if (shards_) squared_norms_.clear();
    while (squared_norms_.size() < (shards_ ? 1 : parameters_.size())) {
      squared_norms_.push_back(Tensor(parameters_.device(), shards_ ? rows : 1, 2, "squared norms"));
    }
  }
  /// 1 x 2.
  Tensor norm_of(std::size_t number) {
    make_norms();
    const auto row = static_cast<Index>(number);
    return shards_ ? squared_norms_.front().row_range(row, row + 1) : squared_norms_[number];
  }

  /// Copies the changed values from their owners to the other members. Later parameters come first, as their gradients
  /// do.
  void share(const std::vector<Changed>& changed, std::source_location from) {
    const Device& device = parameters_.device();
    Buckets::Parts parts;
    for (std::size_t i = changed.size(); i-- > 0;) {
      const Changed& one = changed[i];
      const Tensor& value = parameters_.value(parameters_[one.number]);
      if (one.gradient.all) {
        parts.push_back({one.number, value});
      } else if (updates(one.number)) {
        const IntTensor& of = one.gradient.rows.front().of;
        parts.push_back({one.number, apply(device, op::gather_rows, {.in = {value}, .indices = {of}}, from)});
      } else {
        parts.push_back({one.number, Tensor(device, one.tensor().rows(), value.width(), OpName("rows"))});
      }
    }
    shards_->share(parts, from);
    for (std::size_t i = 0; i < changed.size(); ++i) {
      const Changed& one = changed[i];
      if (!one.gradient.all && !updates(one.number)) replace_rows(one, parts[changed.size() - 1 - i].tensor, from);
    }
  }
  /// Replaces rows by a step from 0 against the new rows: exact, except for the sign of a zero.
  void replace_rows(const Changed& one, const Tensor& by, std::source_location from) const {
    const Device& device = parameters_.device();
    const Tensor& value = parameters_.value(parameters_[one.number]);
    const StepNumbers replace{.rate = 1, .scale = -1, .decay = 1};
    const Tensor numbers(device, 1, StepNumbers::count, "step");
    numbers.set(std::vector<float>(replace.begin(), replace.begin() + StepNumbers::count), from);
    apply(device, op::sgd_step_rows,
          {.in = {by, numbers},
           .indices = {one.gradient.rows.front().of},
           .attributes = op::to_rows(Rows::count(value.rows())),
           .write = Write::add},
          value, from);
  }

  Parameters& parameters_;
  const Method method_;
  const OptimiserOptions options_;
  const LearningRate rate_;
  const std::shared_ptr<StepCounts> counts_;
  OptimiserStates states_;
  std::shared_ptr<const Shards> shards_;         // null unless the update is sharded
  std::vector<ParameterOptions> of_parameters_;  // by number; the default for those beyond the end
  std::uint64_t collected_ = 0;                  // minibatches since the last step, and their samples
  std::size_t samples_ = 0;
  /// 1 x 2 for each parameter; with a sharded update, one tensor with a row for each. Made as needed.
  std::vector<Tensor> squared_norms_;
  /// Of the gradients of the last step, and the factor by which gradients are scaled. None before the first step.
  struct Norm {
    std::vector<Tensor> squares;
    double scale;
  };
  std::optional<Norm> last_norm_;
};

Optimiser::Optimiser(Parameters& parameters, Method method, OptimiserOptions options)
    : impl_(std::make_unique<Impl>(parameters, std::move(method), std::move(options))) {}
Optimiser::~Optimiser() = default;

void Optimiser::set(const Parameter& parameter, const ParameterOptions& options) { impl_->set(parameter, options); }
void Optimiser::scale_rate(double factor) { impl_->scale_rate(factor); }
void Optimiser::step(std::size_t samples, std::source_location from) { impl_->step(samples, from); }
double Optimiser::last_norm(std::source_location from) const { return impl_->last_norm(from); }
void Optimiser::finish(std::source_location from) { impl_->finish(from); }
Optimiser::Progress Optimiser::progress() const { return impl_->progress(); }
bool Optimiser::takes_step() const { return impl_->takes_step(); }
bool Optimiser::between_steps() const { return impl_->between_steps(); }
const Method& Optimiser::method() const { return impl_->method(); }
double Optimiser::rate() const { return impl_->rate(); }
std::vector<OptimiserTensor> Optimiser::tensors() const { return impl_->tensors(); }
std::vector<OptimiserTensor> Optimiser::tensors_of_all() const { return impl_->tensors_of_all(); }
bool Optimiser::is_of(const Parameters& parameters) const { return impl_->is_of(parameters); }
void Optimiser::shard(std::shared_ptr<const Shards> shards) { impl_->shard(std::move(shards)); }
void Optimiser::restore(const Progress& progress, const std::vector<std::string>& names) {
  impl_->restore(progress, names);
}

}  // namespace windrow
