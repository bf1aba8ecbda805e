#include "optimiser_states.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "windrow/engine/engine.h"
#include "windrow/memory/buffer.h"
#include "windrow/ops/static.h"

namespace windrow {
namespace {

void fill_with(const Tensor& state, const std::function<float()>& value, std::vector<Access> accesses) {
  const auto write = [value](const Matrix<float>& to) {
    for (Index r = 0; r < to.rows; ++r) std::fill_n(to.row(r), to.width, value());
  };
  state.fill(write, std::move(accesses), {.name = "optimiser state"});
}

}  // namespace

StepCounts::ByName StepCounts::others(const Parameters& parameters, std::uint64_t usual) const {
  ByName others;
  for (std::size_t number = 0; number < parameters.size(); ++number) {
    if (of(number) != usual) others[parameters.name(parameters[number])] = of(number);
  }
  return others;
}

std::vector<std::uint64_t> StepCounts::all(const Parameters& parameters, std::uint64_t usual, const ByName& others) {
  std::vector<std::uint64_t> all(parameters.size(), usual);
  for (const auto& [name, count] : others) all[number_of(parameters, parameters.find(name))] = count;
  return all;
}

std::string OptimiserStates::prefix(std::size_t k) const {
  return method_.name + "." + (k < method_.step->states ? std::to_string(k) : "steps") + "/";
}

OptimiserStates::Kept& OptimiserStates::kept(std::size_t number) {
  if (kept_.size() < parameters_.size()) kept_.resize(parameters_.size());
  return kept_[number];
}

void OptimiserStates::change_by_rows(std::size_t number) { kept(number).by_rows |= counts_rows(); }

Tensor OptimiserStates::made_like(std::size_t number, std::size_t k) const {
  const Tensor& value = parameters_.value(parameters_[number]);
  return {parameters_.device(), value.rows(), k < method_.step->states ? value.width() : 1, "optimiser state"};
}

void OptimiserStates::make(std::size_t number) {
  Kept& of = kept(number);
  const Unrecorded once;  // replays of a Static continue with these states
  while (of.states.size() < method_.step->states) {
    of.states.push_back(made_like(number, of.states.size()));
    fill_with(of.states.back(), [initial = method_.initial] { return initial; }, {});
  }
  if (!of.by_rows || of.row_steps) return;
  // Steps that were not by rows have changed all rows.
  of.row_steps = made_like(number, method_.step->states);
  fill_with(*of.row_steps, [counts = counts_, number] { return static_cast<float>(counts->of(number)); },
            {read(counts_->var())});
  std::vector<std::int32_t> rows(static_cast<std::size_t>(of.row_steps->rows()));
  std::iota(rows.begin(), rows.end(), 0);
  of.all_rows = IntTensor(parameters_.device(), of.row_steps->rows(), 1, "rows");
  of.all_rows->set(std::move(rows));
}

void OptimiserStates::drop(std::size_t number) {
  Kept& of = kept(number);
  of = {.by_rows = of.by_rows};
}

void OptimiserStates::step(const std::vector<Step>& steps, std::source_location from) const {
  std::vector<Applied> whole;
  for (const Step& step : steps) {
    const auto& [number, gradient, numbers] = step;
    const Kept& of = kept_[number];
    Operands operands{.in = {gradient.all ? *gradient.all : gradient.rows.front().rows, numbers},
                      .write = Write::add,
                      .states = of.states};
    if (gradient.all && !of.by_rows) {
      whole.push_back({std::move(operands), parameters_.value(parameters_[number])});
    } else {
      step_by_rows(step, std::move(operands), from);
    }
  }
  apply_each(parameters_.device(), *method_.step, whole, from);
}

void OptimiserStates::step_by_rows(const Step& step, Operands operands, std::source_location from) const {
  const Device& device = parameters_.device();
  const Kept& of = kept_[step.number];
  const Tensor& value = parameters_.value(parameters_[step.number]);
  operands.indices = {step.gradient.all ? *of.all_rows : step.gradient.rows.front().of};
  operands.attributes = op::to_rows(Rows::count(value.rows()));
  if (of.by_rows) {
    apply(device, op::count_step_rows,
          {.in = {step.numbers}, .indices = operands.indices, .attributes = operands.attributes, .write = Write::add},
          *of.row_steps, from);
    operands.in.push_back(*of.row_steps);
  }
  apply(device, *method_.step_rows, operands, value, from);
}

std::vector<std::vector<Tensor>> OptimiserStates::all() const {
  std::vector<std::vector<Tensor>> all(parameters_.size());
  for (std::size_t number = 0; number < kept_.size(); ++number) {
    all[number] = kept_[number].states;
    if (kept_[number].row_steps) all[number].push_back(*kept_[number].row_steps);
  }
  return all;
}

std::vector<OptimiserTensor> OptimiserStates::named(const std::vector<std::vector<Tensor>>& all) const {
  std::vector<OptimiserTensor> result;
  for (std::size_t number = 0; number < all.size(); ++number) {
    for (std::size_t k = 0; k < all[number].size(); ++k) {
      result.push_back({prefix(k) + parameters_.name(parameters_[number]), all[number][k]});
    }
  }
  return result;
}

std::size_t OptimiserStates::restore(const std::string& name) {
  const std::size_t states = method_.step->states;
  for (std::size_t k = 0; k < states + (counts_rows() ? 1 : 0); ++k) {
    if (!name.starts_with(prefix(k))) continue;
    const std::size_t number = number_of(parameters_, parameters_.find(name.substr(prefix(k).size())));
    if (k == states) change_by_rows(number);
    return number;
  }
  throw MisuseError("optimiser: a state '" + name + "'; expected one of method '" + method_.name + "'");
}

std::size_t number_of(const Parameters& parameters, const Parameter& parameter) {
  const std::string& name = parameters.name(parameter);
  for (std::size_t number = 0;; ++number) {
    if (parameters.name(parameters[number]) == name) return number;
  }
}

}  // namespace windrow
