#include "windrow/training/optimiser.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "shards.h"
#include "windrow/engine/engine.h"
#include "windrow/memory/buffer.h"
#include "windrow/ops/apply.h"
#include "windrow/ops/recording.h"

namespace windrow {
namespace {

void require(bool holds, const std::string& what, double value, const char* expected) {
  if (!holds) throw MisuseError("optimiser: " + what + " " + std::to_string(value) + "; expected " + expected);
}
void require_factor(const std::string& what, double value) {
  require(std::isfinite(value) && value >= 0, what, value, "a number, 0 or more");
}

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
  require_factor("penalty", options.penalty);
  require_factor("decay", options.decay);
  require(options.clip_value > 0, "clip_value", options.clip_value, "more than 0");
  require(options.clip_norm > 0, "clip_norm", options.clip_norm, "more than 0");
  require(options.accumulate > 0, "accumulate", 0, "1 or more");
  return options;
}

/// The factors of one or more parameters, which share a row of numbers.
struct Group {
  double rate, penalty, decay;
  friend bool operator==(const Group&, const Group&) = default;
};

}  // namespace

class Optimiser::Impl {
 public:
  Impl(Parameters& parameters, Method method, OptimiserOptions options)
      : parameters_(parameters),
        method_(checked(std::move(method))),
        options_(checked(std::move(options))),
        progress_(std::make_shared<Shared>(parameters.device().engine)) {}

  void set(const Parameter& parameter, const ParameterOptions& options) {
    require_factor("rate_factor", options.rate_factor);
    require_factor("penalty_factor", options.penalty_factor);
    require_factor("decay_factor", options.decay_factor);
    slot(number_of(parameter)).options = options;
  }

  void scale_rate(double factor) {
    require_factor("factor of the rate", factor);
    engine().push([progress = progress_, factor] { progress->made.rate_scale = factor; }, {mutate(progress_->var())},
                  {.name = "scale rate"});
  }

  void step(std::size_t samples, std::source_location from) {
    require(samples > 0, "a step of samples:", 0, "1 or more");
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
    engine().wait(progress_->var());
    return progress_->made;
  }
  double rate() const {
    const Progress now = progress();
    return options_.rate(now.steps) * now.rate_scale;
  }
  bool takes_step() const { return collected_ + 1 >= options_.accumulate; }
  bool between_steps() const { return collected_ > 0; }
  const Method& method() const { return method_; }

  std::vector<OptimiserTensor> tensors() const { return named(states()); }
  std::vector<OptimiserTensor> tensors_of_all() const {
    return shards_ ? named(shards_->collect(states())) : tensors();
  }

  void restore(const Progress& progress, const std::vector<std::string>& names) {
    std::vector<std::size_t> numbers;
    for (const std::string& name : names) numbers.push_back(parameter_of(name));
    for (const std::size_t number : numbers) {
      if (updates(number)) make_states(number);
    }
    engine().push([shared = progress_, progress] { shared->made = progress; }, {mutate(progress_->var())},
                  {.name = "restore optimiser"});
  }

  bool is_of(const Parameters& parameters) const { return &parameters == &parameters_; }
  void shard(std::shared_ptr<const Shards> shards) {
    shards_ = std::move(shards);
    for (std::size_t number = 0; number < slots_.size(); ++number) {
      if (!updates(number)) slots_[number].states.clear();
    }
  }

 private:
  struct Slot {
    ParameterOptions options = {};
    std::vector<Tensor> states = {};  // made by the first step
  };
  /// Guarded by the variable, since ops of captured graphs change it, too.
  struct Shared {
    explicit Shared(const EngineRef& engine) : tag(engine, host_allocator(), 0, "optimiser") {}
    Var var() const { return tag.var(); }

    const Buffer tag;
    Progress made = {};
  };
  /// A parameter that a step changes: by its whole gradient, or by rows. If the step is another member's, the gradient
  /// only says which of both, and of which rows.
  struct Changed {
    std::size_t number, group;
    Gradient gradient;

    const Tensor& tensor() const { return gradient.all ? *gradient.all : gradient.rows.front().rows; }
  };

  Engine& engine() const { return *parameters_.device().engine; }
  std::string prefix(std::size_t state) const { return method_.name + "." + std::to_string(state) + "/"; }
  std::size_t number_of(const Parameter& parameter) const {
    const std::string& name = parameters_.name(parameter);  // throws for one of another set
    for (std::size_t number = 0;; ++number) {
      if (parameters_.name(parameters_[number]) == name) return number;
    }
  }
  std::size_t parameter_of(const std::string& state) const {
    for (std::size_t k = 0; k < method_.step->states; ++k) {
      if (state.starts_with(prefix(k))) return number_of(parameters_.find(state.substr(prefix(k).size())));
    }
    throw MisuseError("optimiser: a state '" + state + "'; expected one of method '" + method_.name + "'");
  }
  Slot& slot(std::size_t number) {
    if (slots_.size() < parameters_.size()) slots_.resize(parameters_.size());
    return slots_[number];
  }

  /// Whether this member takes the steps of the parameter.
  bool updates(std::size_t number) const { return !shards_ || shards_->owned(number); }
  /// By parameter.
  std::vector<std::vector<Tensor>> states() const {
    std::vector<std::vector<Tensor>> all(parameters_.size());
    for (std::size_t number = 0; number < slots_.size(); ++number) all[number] = slots_[number].states;
    return all;
  }
  std::vector<OptimiserTensor> named(const std::vector<std::vector<Tensor>>& states) const {
    std::vector<OptimiserTensor> all;
    for (std::size_t number = 0; number < states.size(); ++number) {
      for (std::size_t k = 0; k < states[number].size(); ++k) {
        all.push_back({prefix(k) + parameters_.name(parameters_[number]), states[number][k]});
      }
    }
    return all;
  }

  void make_states(std::size_t number) {
    std::vector<Tensor>& states = slot(number).states;
    const Tensor& value = parameters_.value(parameters_[number]);
    const Unrecorded once;  // replays of a Static go on with the states
    while (states.size() < method_.step->states) {
      const Tensor state(parameters_.device(), value.rows(), value.width(), "optimiser state");
      const auto begin = [initial = method_.initial](const Matrix<float>& to) {
        for (Index r = 0; r < to.rows; ++r) std::fill_n(to.row(r), to.width, initial);
      };
      state.fill(begin, {}, {.name = "optimiser state"});
      states.push_back(state);
    }
  }

  /// Those that are not frozen and have a gradient. Groups are numbered as they occur.
  std::vector<Changed> changed_parameters(std::source_location from) {
    std::vector<Changed> changed;
    groups_.clear();
    for (std::size_t number = 0; number < parameters_.size(); ++number) {
      const ParameterOptions& options = slot(number).options;
      if (parameters_.frozen(parameters_[number])) continue;
      Gradient gradient = parameters_.summed_gradient(parameters_[number], from);
      if (!gradient.all && gradient.rows.empty()) continue;
      if (!gradient.all && (options_.tables == OptimiserOptions::Tables::dense || method_.step_rows == nullptr)) {
        gradient.all = updates(number) ? all_rows(gradient.rows.front(), parameters_[number].type().rows, from)
                                       : parameters_.value(parameters_[number]);  // only says that all rows change
      }
      const Group group{options.rate_factor, options.penalty_factor, options.decay_factor};
      const auto found = std::ranges::find(groups_, group);
      changed.push_back({number, static_cast<std::size_t>(found - groups_.begin()), std::move(gradient)});
      if (found == groups_.end()) groups_.push_back(group);
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
    const Tensor numbers = push_numbers(1 / static_cast<double>(std::exchange(samples_, 0)), from);
    collected_ = 0;
    const std::vector<Tensor> of_groups = limited(numbers, changed, from);
    for (const Changed& one : changed) {
      if (updates(one.number)) change(one, of_groups[one.group], from);
    }
    if (shards_) share(changed, from);
  }

  /// Pushes the op that begins the step: it decides the numbers, a row for each group.
  Tensor push_numbers(double scale, std::source_location from) {
    const NextStep next = parameters_.next_step(from);
    const Tensor numbers(parameters_.device(), static_cast<Index>(groups_.size()), StepNumbers::count, "step");
    std::vector<Access> accesses = next.accesses();
    accesses.push_back(mutate(progress_->var()));
    const auto write = [=, shared = progress_, groups = groups_, options = options_,
                        coefficients = method_.coefficients](const Matrix<float>& to) {
      const bool skipped = next.skipped();
      Progress& progress = shared->made;
      const double rate = options.rate(progress.steps) * progress.rate_scale;
      if (!skipped) ++progress.steps;
      for (std::size_t g = 0; g < groups.size(); ++g) {
        StepNumbers of_group{.rate = static_cast<float>(rate * groups[g].rate),
                             .scale = skipped ? 0 : static_cast<float>(scale),
                             .most = static_cast<float>(options.clip_value),
                             .most_norm = static_cast<float>(options.clip_norm),
                             .penalty = static_cast<float>(options.penalty * groups[g].penalty),
                             .decay = static_cast<float>(options.decay * groups[g].decay)};
        if (coefficients) coefficients(progress.steps, of_group);
        std::copy_n(of_group.begin(), StepNumbers::count, to.row(static_cast<Index>(g)));
      }
    };
    numbers.fill(write, std::move(accesses), {.name = "optimiser step", .pushed_at = from});
    // A failed minibatch fails all of the step, but not the progress, which a checkpoint may restore.
    std::vector<Access> ends = next.ends();
    if (ends.empty()) return numbers;
    ends.push_back(mutate(numbers.var()));
    engine().push([next] {}, ends, {.name = "optimiser step", .lane = numbers.lane(), .pushed_at = from});
    return numbers;
  }

  /// The numbers of each group, after the norm was limited.
  std::vector<Tensor> limited(const Tensor& numbers, const std::vector<Changed>& changed, std::source_location from) {
    const Device& device = parameters_.device();
    std::vector<Tensor> norms, of_groups;
    if (std::isfinite(options_.clip_norm)) norms = shards_ ? norms_of_all(changed, from) : norms_of(changed, from);
    for (Index g = 0; g < numbers.rows(); ++g) {
      of_groups.push_back(numbers.row_range(g, g + 1));
      if (norms.empty()) continue;
      Operands operands{.in = {of_groups.back()}};
      operands.in.insert(operands.in.end(), norms.begin(), norms.end());
      of_groups.back() = apply(device, op::limit_norm, operands, from);
    }
    return of_groups;
  }

  /// Squared norms, as 1 x 1 tensors.
  std::vector<Tensor> norms_of(const std::vector<Changed>& changed, std::source_location from) const {
    std::vector<Tensor> norms;
    for (const Changed& one : changed) {
      norms.push_back(apply(parameters_.device(), op::squared_norm, {.in = {one.tensor()}}, from));
    }
    return norms;
  }
  /// The same where each member has some of the gradients: each norm comes from one member, and the others add 0 to it,
  /// so it has the bits that it has there.
  std::vector<Tensor> norms_of_all(const std::vector<Changed>& changed, std::source_location from) const {
    if (changed.empty()) return {};
    const Tensor all(parameters_.device(), static_cast<Index>(changed.size()), 1, "squared norms");
    all.set(std::vector<float>(changed.size(), 0), from);
    std::vector<Tensor> norms;
    for (const Changed& one : changed) {
      const auto next = static_cast<Index>(norms.size());
      norms.push_back(all.row_range(next, next + 1));
      if (!updates(one.number)) continue;
      apply(parameters_.device(), op::squared_norm, {.in = {one.tensor()}}, norms.back(), from);
    }
    shards_->add_up(all, from);
    return norms;
  }

  /// Copies what has changed from the members that have changed it. Later parameters come first, as their gradients do.
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
        parts.push_back({one.number, Tensor(device, one.tensor().rows(), value.width(), "rows")});
      }
    }
    shards_->share(parts, from);
    for (std::size_t i = 0; i < changed.size(); ++i) {
      const Changed& one = changed[i];
      if (!one.gradient.all && !updates(one.number)) replace_rows(one, parts[changed.size() - 1 - i].tensor, from);
    }
  }
  /// By a step from 0 against the new rows: exact, but for the sign of a zero.
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

  void change(const Changed& one, const Tensor& numbers, std::source_location from) {
    make_states(one.number);
    const Tensor& value = parameters_.value(parameters_[one.number]);
    Operands operands{.in = {one.tensor(), numbers}, .write = Write::add, .states = slots_[one.number].states};
    if (one.gradient.all) return apply(parameters_.device(), *method_.step, operands, value, from);
    operands.indices = {one.gradient.rows.front().of};
    operands.attributes = op::to_rows(Rows::count(value.rows()));
    apply(parameters_.device(), *method_.step_rows, operands, value, from);
  }

  Parameters& parameters_;
  const Method method_;
  const OptimiserOptions options_;
  const std::shared_ptr<Shared> progress_;
  std::shared_ptr<const Shards> shards_;  // null unless the update is sharded
  std::vector<Slot> slots_;               // by parameter
  std::vector<Group> groups_;             // of the step that is pushed
  std::uint64_t collected_ = 0;           // minibatches since the last step, and their samples
  std::size_t samples_ = 0;
};

Optimiser::Optimiser(Parameters& parameters, Method method, OptimiserOptions options)
    : impl_(std::make_unique<Impl>(parameters, std::move(method), std::move(options))) {}
Optimiser::~Optimiser() = default;

void Optimiser::set(const Parameter& parameter, const ParameterOptions& options) { impl_->set(parameter, options); }
void Optimiser::scale_rate(double factor) { impl_->scale_rate(factor); }
void Optimiser::step(std::size_t samples, std::source_location from) { impl_->step(samples, from); }
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
