#include "windrow/batching/parameters.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <iterator>
#include <utility>

#include "parameters/gradient.h"
#include "parameters/orthogonal.h"
#include "parameters/parameter_store.h"
#include "parameters/skipped_steps.h"
#include "windrow/batching/backend/execution.h"
#include "windrow/ops/number.h"
#include "windrow/ops/philox.h"
#include "windrow/ops/recording.h"

namespace windrow {
namespace {

std::uint64_t next_parameters_id() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

float finite(float factor) {
  if (!std::isfinite(factor)) throw MisuseError("a factor of " + shortest_text(factor) + "; expected it finite");
  return factor;
}

/// The elements of a matrix with `value` on the diagonal.
std::vector<float> diagonal(MatrixShape shape, float value) {
  std::vector<float> elements(static_cast<std::size_t>(shape.rows * shape.width));
  for (Index i = 0; i < std::min(shape.rows, shape.width); ++i) {
    elements[static_cast<std::size_t>(i * shape.width + i)] = value;
  }
  return elements;
}

}  // namespace

Initial Initial::glorot(Index rows, Index width) {
  const float bound = std::sqrt(6.0f / static_cast<float>(std::max<Index>(rows + width, 1)));
  return uniform(-bound, bound);
}

Initial Initial::he_normal(Index inputs) {
  return normal(0, std::sqrt(2.0f / static_cast<float>(std::max<Index>(inputs, 1))));
}
Initial Initial::he_uniform(Index inputs) {
  const float bound = std::sqrt(6.0f / static_cast<float>(std::max<Index>(inputs, 1)));
  return uniform(-bound, bound);
}

ParameterStore::ParameterStore(const Device& device, std::uint64_t seed, ParametersOptions options)
    : device_(device),
      id_(next_parameters_id()),
      seed_(seed),
      options_(std::move(options)),
      generator_(*device.engine, seed),
      skipped_(std::make_shared<SkipLog>()) {}

std::uint64_t ParameterStore::sample_seed(std::size_t sample) const {
  if (!samples_.empty() && sample >= samples_.size()) {
    throw MisuseError("sample_seed: sample " + std::to_string(sample) + " of a minibatch; expected one of its " +
                      std::to_string(samples_.size()) + " with numbers");
  }
  const std::uint64_t of_minibatch = samples_.empty() ? draw(minibatches_) : minibatches_;
  const auto number =
      samples_.empty() ? static_cast<std::uint32_t>(sample) : static_cast<std::uint32_t>(samples_[sample]);
  const auto words =
      philox({static_cast<std::uint32_t>(of_minibatch), static_cast<std::uint32_t>(of_minibatch >> 32), number, 0},
             philox_key(seed_));
  return std::uint64_t{words[1]} << 32 | words[0];
}

Parameter ParameterStore::add(const std::string& name, Index rows, Index width, Initial initial) {
  require_new(name);
  try {
    return add(name, drawn(rows, width, initial));
  } catch (const MisuseError& error) {
    throw MisuseError("parameter '" + name + "': " + error.what());
  }
}

void ParameterStore::require_new(const std::string& name) const {
  if (std::ranges::find(entries_, name, &Entry::name) == entries_.end()) return;
  throw MisuseError("parameter '" + name + "' is added twice; expected once");
}

Parameter ParameterStore::add(const std::string& name, const Tensor& value) {
  require_new(name);
  entries_.push_back({name, value});
  entries_.back().full_name = std::make_shared<std::string>(options_.name.empty() ? name : options_.name + "/" + name);
  return (*this)[entries_.size() - 1];
}

Tensor ParameterStore::drawn(Index rows, Index width, Initial initial) {
  const Tensor value(device_, rows, width, "parameter");
  switch (initial.draw) {
    case Initial::Draw::uniform:
      generator_.uniform(value, initial.a, initial.b);
      break;
    case Initial::Draw::normal:
      generator_.normal(value, initial.a, initial.b);
      break;
    case Initial::Draw::orthogonal:
      generator_.normal(value, 0, 1);
      value.set(orthogonal(value.get(), {rows, width}, finite(initial.a)));
      break;
    case Initial::Draw::identity:
      value.set(diagonal({rows, width}, finite(initial.a)));
      break;
  }
  return value;
}

Parameter ParameterStore::operator[](std::size_t number) const {
  if (number >= entries_.size()) {
    throw MisuseError("there is no parameter " + std::to_string(number) + "; expected less than " +
                      std::to_string(entries_.size()));
  }
  const Tensor& value = entries_[number].value;
  return Parameter(id_, number, {Rows::count(value.rows()), value.width()}, entries_[number].full_name);
}

Parameter ParameterStore::find(const std::string& name) const {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].name == name) return (*this)[i];
  }
  throw MisuseError("there is no parameter '" + name + "'; expected one that was added");
}

std::int32_t ParameterStore::number_of(const Parameter& parameter) const {
  if (parameter.set_ != id_) {
    throw MisuseError("parameter '" + *parameter.name_ + "' of another set; expected one of " +
                      (options_.name.empty() ? "this" : "set '" + options_.name + "'"));
  }
  return static_cast<std::int32_t>(parameter.number_);
}

const Gradient& ParameterStore::gradient(const Parameter& parameter) {
  Entry& of = entries_[static_cast<std::size_t>(number_of(parameter))];
  while (of.gradient.rows.size() < of.lookups.size()) {
    of.gradient.rows.push_back(gradient_rows(device_, of.lookups[of.gradient.rows.size()]));
  }
  return of.gradient;
}

Gradient ParameterStore::summed_gradient(const Parameter& parameter, std::source_location from) const {
  const Entry& of = entry(parameter);
  if (of.gradient.all && of.lookups.empty()) return {.all = of.gradient.all};
  if (of.gradient.all) return {.all = dense(device_, of.gradient.all, of.lookups, parameter.type(), from)};
  const std::optional<Gradient::Rows> rows = summed_lookups(of, from);
  return rows ? Gradient{.rows = {*rows}} : Gradient{};
}

std::optional<Gradient::Rows> ParameterStore::summed_lookups(const Entry& entry, std::source_location from) const {
  if (entry.lookups.empty()) return {};
  std::vector<Tensor> parts;
  for (const LookedUp& lookup : entry.lookups) parts.push_back(lookup.rows);
  const std::vector<IntTensor> segments = by_table_row(device_, entry.lookups, from);
  if (segments.front().rows() == 0) return {};
  return Gradient::Rows{segments.front().column_range(0, 1),
                        apply(device_, op::sum_parts, {.in = std::move(parts), .indices = segments}, from)};
}

std::vector<std::int32_t> ParameterStore::looked_up_rows(const Entry& entry) {
  std::vector<std::int32_t> rows;
  for (const LookedUp& lookup : entry.lookups) {
    std::ranges::copy_if(lookup.row_of, std::back_inserter(rows), [](std::int32_t row) { return row >= 0; });
  }
  std::ranges::sort(rows);
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

/// Rows of lookups lie in the memory of their minibatch. Their sums do not, so it can be freed.
void ParameterStore::keep_gradients(std::source_location from) {
  keeps_gradients_ = true;  // also if the following fails, since sums and parts are equivalent
  for (Entry& entry : entries_) {
    if (entry.lookups.empty()) continue;
    std::vector<LookedUp> kept;
    if (const auto summed = summed_lookups(entry, from)) kept.push_back({looked_up_rows(entry), summed->rows, from});
    entry.lookups = std::move(kept);
    entry.gradient.rows.clear();
  }
}

void ParameterStore::add_kept_gradients(std::vector<Access>& reads) const {
  if (!keeps_gradients_) return;
  for (const Entry& entry : entries_) {
    if (entry.gradient.all) reads.push_back(read(entry.gradient.all->var()));
    for (const LookedUp& lookup : entry.lookups) reads.push_back(read(lookup.rows.var()));
  }
  if (!sources_.empty()) reads.push_back(read(sources_.back()->over.var()));
}

Gradient::Rows gradient_rows(const Device& device, const LookedUp& looked_up) {
  const auto& [row_of, rows, from, segments] = looked_up;
  const std::size_t each = looked_up.each();
  const auto indices = [&, from = from](std::vector<std::int32_t> elements) {
    const IntTensor tensor(device, static_cast<Index>(elements.size()), 1, "rows");
    tensor.set(std::move(elements), from);
    return tensor;
  };
  std::vector<std::int32_t> present, rows_of_present;
  for (std::size_t r = 0; r < row_of.size(); ++r) {
    if (row_of[r] == -1) continue;
    present.push_back(static_cast<std::int32_t>(r / each));
    rows_of_present.push_back(row_of[r]);
  }
  if (present.size() == row_of.size() && each == 1) return {indices(row_of), rows};
  const Tensor of_present(device, static_cast<Index>(present.size()), rows.width(), "rows");
  apply(device, op::gather_rows, {.in = {rows}, .indices = {indices(std::move(present))}}, of_present, from);
  return {indices(std::move(rows_of_present)), of_present};
}

void ParameterStore::forget_gradients() {
  for (Entry& entry : entries_) {
    entry.gradient = {};
    entry.lookups.clear();
    entry.depends = false;
  }
  sources_.clear();
  agree_ = nullptr;
  keeps_gradients_ = false;
}

void ParameterStore::set_frozen(const Parameter& parameter, bool frozen) {
  entries_[static_cast<std::size_t>(number_of(parameter))].frozen = frozen;
}

Parameters::Parameters(const Device& device, std::uint64_t seed, ParametersOptions options)
    : store_(std::make_shared<ParameterStore>(device, seed, std::move(options))) {}
Parameters::~Parameters() = default;

Parameter Parameters::add(const std::string& name, Index rows, Index width, Initial initial) {
  refuse_in_recording("Parameters::add()");
  return store_->add(name, rows, width, initial);
}
Parameter Parameters::add(const std::string& name, const Tensor& value) { return store_->add(name, value); }
const std::string& Parameters::name() const { return store_->name(); }
std::size_t Parameters::size() const { return store_->size(); }
Parameter Parameters::operator[](std::size_t number) const { return (*store_)[number]; }
Parameter Parameters::find(const std::string& name) const { return store_->find(name); }
const std::string& Parameters::name(const Parameter& parameter) const { return store_->entry(parameter).name; }
const Tensor& Parameters::value(const Parameter& parameter) const { return store_->entry(parameter).value; }
const Gradient& Parameters::gradient(const Parameter& parameter) const { return store_->gradient(parameter); }
Tensor Parameters::dense_gradient(const Parameter& parameter, std::source_location from) const {
  const ParameterStore::Entry& entry = store_->entry(parameter);
  return dense(store_->device(), entry.gradient.all, entry.lookups, parameter.type(), from);
}
Gradient Parameters::summed_gradient(const Parameter& parameter, std::source_location from) const {
  return store_->summed_gradient(parameter, from);
}
void Parameters::set_member(int rank, int members) {
  if (rank < 0 || rank >= members) {
    throw MisuseError("set_member: rank " + std::to_string(rank) + " of " + std::to_string(members) +
                      "; expected one from 0 to " + std::to_string(members - 1));
  }
  store_->set_member(static_cast<std::uint64_t>(rank), static_cast<std::uint64_t>(members));
}

void Parameters::number_samples(std::vector<std::int32_t> numbers) { store_->number_samples(std::move(numbers)); }
std::uint64_t Parameters::sample_seed(std::size_t sample) const { return store_->sample_seed(sample); }

std::uint64_t Parameters::minibatches() const { return store_->minibatches(); }
void Parameters::set_minibatches(std::uint64_t number) { store_->set_minibatches(number); }
void Parameters::keep_gradients(std::source_location from) {
  refuse_in_recording("Parameters::keep_gradients()");
  store_->keep_gradients(from);
}
void Parameters::agree_on_steps(Agree agree) { store_->agree_on_steps(std::move(agree)); }
void Parameters::freeze(const Parameter& parameter) { store_->set_frozen(parameter, true); }
void Parameters::unfreeze(const Parameter& parameter) { store_->set_frozen(parameter, false); }
bool Parameters::frozen(const Parameter& parameter) const { return store_->entry(parameter).frozen; }
const Device& Parameters::device() const { return store_->device(); }
NextStep Parameters::next_step(std::source_location from) { return store_->next_step(from); }
std::uint64_t Parameters::sgd(double rate, double decay, std::source_location from) {
  return store_->sgd(rate, decay, from);
}
SkippedSteps Parameters::skipped_steps() const { return store_->skipped_steps(); }
void Parameters::forget_gradients() { store_->forget_gradients(); }

}  // namespace windrow
