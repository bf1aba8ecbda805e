#include "windrow/batching/parameters.h"

#include <atomic>
#include <cmath>

#include "windrow/ops/apply.h"

namespace windrow {
namespace {

std::uint64_t next_id() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

}  // namespace

Initial Initial::glorot(Index rows, Index width) {
  const float bound = std::sqrt(6.0f / static_cast<float>(rows + width));
  return uniform(-bound, bound);
}

Parameters::Parameters(const Device& device, std::uint64_t seed)
    : device_(device), id_(next_id()), generator_(*device.engine, seed) {}

Parameter Parameters::add(const std::string& name, Index rows, Index width, Initial initial) {
  for (const Entry& entry : entries_) {
    if (entry.name == name) throw MisuseError("parameter '" + name + "' is added twice; expected once");
  }
  try {
    entries_.push_back({name, drawn(rows, width, initial), std::nullopt, {}});
  } catch (const MisuseError& error) {
    throw MisuseError("parameter '" + name + "': " + error.what());
  }
  return (*this)[entries_.size() - 1];
}

Tensor Parameters::drawn(Index rows, Index width, Initial initial) {
  const Tensor value(device_, rows, width, "parameter");
  if (initial.draw == Initial::Draw::uniform) {
    generator_.uniform(value, initial.a, initial.b);
  } else {
    generator_.normal(value, initial.a, initial.b);
  }
  return value;
}

Parameter Parameters::operator[](std::size_t number) const {
  if (number >= entries_.size()) {
    throw MisuseError("there is no parameter " + std::to_string(number) + "; expected less than " +
                      std::to_string(entries_.size()));
  }
  const Tensor& value = entries_[number].value;
  return Parameter(id_, number, {Rows::count(value.rows()), value.width()});
}

Parameter Parameters::find(const std::string& name) const {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].name == name) return (*this)[i];
  }
  throw MisuseError("there is no parameter '" + name + "'; expected one that was added");
}

const Parameters::Entry& Parameters::entry(const Parameter& parameter) const {
  if (parameter.set_ != id_) throw MisuseError("a parameter of another set; expected one of this");
  return entries_[parameter.number_];
}

std::int32_t Parameters::number_of(const Parameter& parameter) const {
  entry(parameter);
  return static_cast<std::int32_t>(parameter.number_);
}

const std::string& Parameters::name(const Parameter& parameter) const { return entry(parameter).name; }
const Tensor& Parameters::value(const Parameter& parameter) const { return entry(parameter).value; }
const Gradient& Parameters::gradient(const Parameter& parameter) const { return entry(parameter).gradient; }

void Parameters::forget_gradients() {
  for (Entry& entry : entries_) entry.gradient = {};
}

void Parameters::sgd(double rate, double decay, std::source_location from) {
  if (!std::isfinite(rate) || !std::isfinite(decay)) {
    throw MisuseError("sgd: rate " + std::to_string(rate) + ", decay " + std::to_string(decay) + "; expected numbers");
  }
  for (const Entry& entry : entries_) {
    const Gradient& gradient = entry.gradient;
    if (gradient.all) {
      apply(device_, op::sgd, {.in = {*gradient.all}, .attributes = op::at_rate(rate, decay), .write = Write::add},
            entry.value, from);
    }
    for (const Gradient::Rows& rows : gradient.rows) {
      apply(device_, op::sgd_rows,
            {.in = {rows.rows},
             .indices = {rows.of},
             .attributes = op::rows_at_rate(Rows::count(entry.value.rows()), rate),
             .write = Write::add},
            entry.value, from);
    }
  }
}

}  // namespace windrow
