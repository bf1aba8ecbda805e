#include <algorithm>
#include <string>
#include <utility>

#include "checked.h"
#include "optimiser_states.h"
#include "windrow/engine/engine.h"
#include "windrow/ops/apply.h"
#include "windrow/ops/internal/step_numbers.h"
#include "windrow/ops/static.h"
#include "windrow/training/optimiser.h"

namespace windrow {
namespace {

Operands copy_of(const Tensor& tensor) { return {.in = {tensor}, .attributes = op::scaled_by(1)}; }

}  // namespace

Averages::Averages(Parameters& parameters, AveragesOptions options)
    : parameters_(parameters),
      options_(options),
      counts_(std::make_shared<StepCounts>(parameters.device().engine, "averages")) {
  require_coefficient("averages: decay", options.decay);
  make_missing();  // here, so that a captured update does not repeat it
}

void Averages::make_missing() {
  const Unrecorded once;  // replays of a Static continue with these averages
  while (averages_.size() < parameters_.size()) {
    const Tensor& value = parameters_.value(parameters_[averages_.size()]);
    averages_.push_back(Tensor(parameters_.device(), value.rows(), value.width(), "average"));
    averages_.back().set(std::vector<float>(static_cast<std::size_t>(value.rows() * value.width())));
  }
}

Averages::Progress Averages::progress() const {
  parameters_.device().engine->wait(counts_->var());
  const std::vector<std::uint64_t>& of = counts_->of_parameters;
  const std::uint64_t most = of.empty() ? 0 : std::ranges::max(of);
  return {most, counts_->others(parameters_, most)};
}

void Averages::update(std::source_location from) {
  if (swapped_) throw MisuseError("averages: an update while swapped; expected swap() before it");
  make_missing();
  updated_ = true;
  const Device& device = parameters_.device();
  const Tensor numbers(device, static_cast<Index>(averages_.size()), StepNumbers::count, "average");
  const auto write = [counts = counts_, decay = options_.decay](const Matrix<float>& to) {
    std::vector<std::uint64_t>& counts_of = counts->of_parameters;
    counts_of.resize(std::max(counts_of.size(), static_cast<std::size_t>(to.rows)), 0);
    for (Index i = 0; i < to.rows; ++i) {
      const std::uint64_t count = ++counts_of[static_cast<std::size_t>(i)];
      const double share = decay == 0 || count == 1 ? 1 / static_cast<double>(count) : 1 - decay;
      // average -= share * (average - value)
      const StepNumbers of_parameter{.rate = static_cast<float>(share), .scale = -1, .penalty = 1};
      std::copy_n(of_parameter.begin(), StepNumbers::count, to.row(i));
    }
  };
  numbers.fill(write, {mutate(counts_->var())}, {.name = "average", .pushed_at = from});
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    const auto row = static_cast<Index>(i);
    const Operands operands{.in = {parameters_.value(parameters_[i]), numbers.row_range(row, row + 1)},
                            .write = Write::add};
    apply(device, op::sgd_step, operands, averages_[i], from);
  }
}

void Averages::swap(std::source_location from) {
  if (!updated_) return;
  swapped_ = !swapped_;
  const Device& device = parameters_.device();
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    const Tensor& value = parameters_.value(parameters_[i]);
    const Tensor kept = apply(device, op::scale, copy_of(value), from);
    apply(device, op::scale, copy_of(averages_[i]), value, from);
    apply(device, op::scale, copy_of(kept), averages_[i], from);
  }
}

std::vector<OptimiserTensor> Averages::tensors() const {
  if (swapped_) throw MisuseError("averages: a checkpoint while swapped; expected swap() before it");
  std::vector<OptimiserTensor> all;
  for (std::size_t i = 0; i < averages_.size() && updated_; ++i) {
    all.push_back({parameters_.name(parameters_[i]), averages_[i]});
  }
  return all;
}

void Averages::restore(const Progress& progress) {
  make_missing();
  updated_ = progress.updates > 0;
  const auto set = [counts = counts_, of = StepCounts::all(parameters_, progress.updates, progress.updates_of)] {
    counts->of_parameters = of;
  };
  parameters_.device().engine->push(set, {mutate(counts_->var())}, {.name = "restore averages"});
}

}  // namespace windrow
