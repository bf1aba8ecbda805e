#include "windrow/batching/parameters.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include "parameters/gradient.h"
#include "parameters/parameter_store.h"
#include "parameters/skipped_steps.h"
#include "windrow/batching/internal/execution.h"
#include "windrow/ops/internal/number.h"
#include "windrow/ops/internal/philox.h"
#include "windrow/ops/static.h"

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

struct MatrixShape {
  Index rows, width;
};

/// The elements of a matrix with `value` on the diagonal.
std::vector<float> diagonal(MatrixShape shape, float value) {
  std::vector<float> elements(static_cast<std::size_t>(shape.rows * shape.width));
  for (Index i = 0; i < std::min(shape.rows, shape.width); ++i) {
    elements[static_cast<std::size_t>(i * shape.width + i)] = value;
  }
  return elements;
}

/// A tall matrix in double precision, whose columns become orthonormal.
class Columns {
 public:
  Columns(std::size_t height, std::size_t count)
      : height_(height), count_(count), elements_(height * count), dots_(count) {}
  double& at(std::size_t row, std::size_t column) { return elements_[row * count_ + column]; }

  /// The modified process of Gram and Schmidt: divides each column by its length, and subtracts its direction from the
  /// columns behind it. Lengths are positive, so the directions of independent normal numbers are uniform. Double
  /// precision leaves errors far below those of float, since square normal matrices of n columns have condition numbers
  /// of about n. The loops run along rows, which lie in memory one element after the other.
  void orthonormalise() {
    for (std::size_t k = 0; k < count_; ++k) {
      double squares = 0;
      for (std::size_t r = 0; r < height_; ++r) squares += at(r, k) * at(r, k);
      const double length = std::sqrt(squares);
      for (std::size_t r = 0; r < height_; ++r) at(r, k) /= length;
      subtract_from_later(k);
    }
  }

 private:
  void subtract_from_later(std::size_t k) {
    std::fill(dots_.begin(), dots_.end(), 0.0);
    for (std::size_t r = 0; r < height_; ++r) {
      for (std::size_t c = k + 1; c < count_; ++c) dots_[c] += at(r, k) * at(r, c);
    }
    for (std::size_t r = 0; r < height_; ++r) {
      for (std::size_t c = k + 1; c < count_; ++c) at(r, c) -= at(r, k) * dots_[c];
    }
  }

  const std::size_t height_, count_;
  std::vector<double> elements_;
  std::vector<double> dots_;  // of a column with those behind it
};

/// Makes the columns of a row-major matrix orthonormal, or its rows if it is wider than high, and multiplies it by
/// `gain`. If the matrix consists of independent standard normal numbers, all results are equally likely (Mezzadri
/// 2007). The same numbers give the same bits.
std::vector<float> orthogonal(const std::vector<float>& normal, MatrixShape shape, float gain) {
  const auto rows = static_cast<std::size_t>(shape.rows), width = static_cast<std::size_t>(shape.width);
  const bool tall = rows >= width;
  Columns columns(tall ? rows : width, tall ? width : rows);
  const auto element = [&](std::size_t r, std::size_t c) -> double& {
    return tall ? columns.at(r, c) : columns.at(c, r);
  };
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < width; ++c) element(r, c) = static_cast<double>(normal[r * width + c]);
  }
  columns.orthonormalise();
  std::vector<float> result(normal.size());
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < width; ++c) result[r * width + c] = gain * static_cast<float>(element(r, c));
  }
  return result;
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

ParameterStore::ParameterStore(const Device& device, const ParameterStore& of)
    : device_(device),
      id_(of.id_),
      seed_(of.seed_),
      options_(of.options_),
      generator_(*device.engine, of.seed_),
      steps_(of.steps_),
      minibatches_(of.minibatches_),
      skipped_(std::make_shared<SkipLog>()) {
  for (const Entry& entry : of.entries_) {
    const Tensor value(device_, entry.value.rows(), entry.value.width(), "parameter");
    value.set(entry.value.get());
    Entry& added = entries_.emplace_back(Entry{entry.name, value});
    added.frozen = entry.frozen;
    added.full_name = entry.full_name;
  }
}

void ParameterStore::require_new(const std::string& name) const {
  if (std::ranges::find(entries_, name, &Entry::name) == entries_.end()) return;
  throw MisuseError("parameter '" + name + "' is added twice; expected once");
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

std::int32_t ParameterStore::number_of(const Parameter& parameter) const {
  if (parameter.set_ != id_ || parameter.number_ >= entries_.size()) {  // the latter, of a replica
    throw MisuseError("parameter '" + *parameter.name_ + "' of another set; expected one of " +
                      (options_.name.empty() ? "this" : "set '" + options_.name + "'"));
  }
  return static_cast<std::int32_t>(parameter.number_);
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

void ParameterStore::add_kept_gradients(std::vector<Access>& reads) const {
  if (!keeps_gradients_) return;
  for (const Entry& entry : entries_) {
    if (entry.gradient.all) reads.push_back(read(entry.gradient.all->var()));
    for (const LookedUp& lookup : entry.lookups) reads.push_back(read(lookup.rows.var()));
  }
  if (!sources_.empty()) reads.push_back(read(sources_.back()->over.var()));
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

Parameters::Parameters(const Device& device, std::uint64_t seed, ParametersOptions options)
    : store_(std::make_shared<ParameterStore>(device, seed, std::move(options))) {}
Parameters::Parameters(const Device& device, const Parameters& of)
    : store_(std::make_shared<ParameterStore>(device, *of.store_)) {}
Parameters::~Parameters() = default;

Parameter Parameters::add(const std::string& name, Index rows, Index width, Initial initial) {
  refuse_in_recording("Parameters::add()");
  store_->require_new(name);
  try {
    return add(name, store_->drawn(rows, width, initial));
  } catch (const MisuseError& error) {
    throw MisuseError("parameter '" + name + "': " + error.what());
  }
}

Parameter Parameters::add(const std::string& name, const Tensor& value) {
  store_->require_new(name);
  ParameterStore::Entry& added = store_->entries_.emplace_back(ParameterStore::Entry{name, value});
  added.full_name = std::make_shared<std::string>(this->name().empty() ? name : this->name() + "/" + name);
  return (*this)[size() - 1];
}

Parameter Parameters::find(const std::string& name) const {
  const auto found = std::ranges::find(store_->entries_, name, &ParameterStore::Entry::name);
  if (found == store_->entries_.end()) {
    throw MisuseError("there is no parameter '" + name + "'; expected one that was added");
  }
  return (*this)[static_cast<std::size_t>(found - store_->entries_.begin())];
}

const std::string& Parameters::name() const { return store_->name(); }
std::size_t Parameters::size() const { return store_->entries_.size(); }
Parameter Parameters::operator[](std::size_t number) const { return (*store_)[number]; }
const std::string& Parameters::name(const Parameter& parameter) const { return store_->entry(parameter).name; }
const Tensor& Parameters::value(const Parameter& parameter) const { return store_->entry(parameter).value; }

const Gradient& Parameters::gradient(const Parameter& parameter) const {
  ParameterStore::Entry& of = store_->own(parameter);
  if (of.lookups.empty() || !of.gradient.rows.empty()) return of.gradient;
  if (auto rows = store_->summed_lookups(of, of.lookups.front().from)) of.gradient.rows.push_back(std::move(*rows));
  return of.gradient;
}

Tensor Parameters::dense_gradient(const Parameter& parameter, std::source_location from) const {
  const ParameterStore::Entry& entry = store_->entry(parameter);
  return dense(device(), entry.gradient.all, entry.lookups, parameter.type(), from);
}

Gradient Parameters::summed_gradient(const Parameter& parameter, std::source_location from) const {
  const ParameterStore::Entry& of = store_->entry(parameter);
  if (of.gradient.all && of.lookups.empty()) return {.all = of.gradient.all};
  if (of.gradient.all) return {.all = dense_gradient(parameter, from)};
  const std::optional<Gradient::Rows> rows = store_->summed_lookups(of, from);
  return rows ? Gradient{.rows = {*rows}} : Gradient{};
}

/// Rows of lookups lie in the memory of their minibatch. Their sums do not, so it can be freed.
void Parameters::keep_gradients(std::source_location from) {
  refuse_in_recording("Parameters::keep_gradients()");
  store_->keeps_gradients_ = true;  // set even if the rest fails, since sums and parts are equivalent
  for (std::size_t k = 0; k < size(); ++k) {
    ParameterStore::Entry& entry = store_->entry(k);
    if (entry.lookups.empty()) continue;
    std::vector<LookedUp> kept;
    if (const auto summed = store_->summed_lookups(entry, from)) {
      kept.push_back({looked_up_rows((*this)[k]), summed->rows, from});
    }
    entry.lookups = std::move(kept);
    entry.gradient.rows.clear();
  }
}

void Parameters::set_member(int rank, int members) {
  if (rank < 0 || rank >= members) {
    throw MisuseError("set_member: rank " + std::to_string(rank) + " of " + std::to_string(members) +
                      "; expected one from 0 to " + std::to_string(members - 1));
  }
  store_->rank_ = static_cast<std::uint64_t>(rank);
  store_->members_ = static_cast<std::uint64_t>(members);
}

void Parameters::number_samples(std::vector<std::int32_t> numbers) { store_->samples_ = std::move(numbers); }

std::uint64_t Parameters::sample_seed(std::size_t sample) const {
  const std::vector<std::int32_t>& samples = store_->samples();
  if (!samples.empty() && sample >= samples.size()) {
    throw MisuseError("sample_seed: sample " + std::to_string(sample) + " of a minibatch; expected one of its " +
                      std::to_string(samples.size()) + " with numbers");
  }
  const std::uint64_t of_minibatch = samples.empty() ? store_->draw(minibatches()) : minibatches();
  const auto number =
      samples.empty() ? static_cast<std::uint32_t>(sample) : static_cast<std::uint32_t>(samples[sample]);
  const auto words =
      philox({static_cast<std::uint32_t>(of_minibatch), static_cast<std::uint32_t>(of_minibatch >> 32), number, 0},
             philox_key(store_->seed()));
  return std::uint64_t{words[1]} << 32 | words[0];
}

std::uint64_t Parameters::minibatches() const { return store_->minibatches(); }
void Parameters::set_minibatches(std::uint64_t number) {
  store_->samples_.clear();
  store_->minibatches_ = number;
}
void Parameters::agree_on_steps(Agree agree) { store_->agree_ = std::move(agree); }
void Parameters::freeze(const Parameter& parameter) { store_->own(parameter).frozen = true; }
void Parameters::unfreeze(const Parameter& parameter) { store_->own(parameter).frozen = false; }
bool Parameters::frozen(const Parameter& parameter) const { return store_->entry(parameter).frozen; }
const Device& Parameters::device() const { return store_->device(); }
NextStep Parameters::next_step(std::source_location from) { return store_->next_step(from); }
void Parameters::forget_gradients() { store_->forget_gradients(); }

}  // namespace windrow
