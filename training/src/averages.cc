#include "windrow/training/averages.h"

#include <string>

#include "windrow/ops/apply.h"

namespace windrow {
namespace {

Operands copy_of(const Tensor& tensor) { return {.in = {tensor}, .attributes = op::scaled_by(1)}; }

}  // namespace

Averages::Averages(Parameters& parameters, AveragesOptions options) : parameters_(parameters), options_(options) {
  if (options.decay >= 0 && options.decay < 1) return;
  throw MisuseError("averages: decay " + std::to_string(options.decay) + "; expected 0 or more, and less than 1");
}

void Averages::make_missing() {
  while (averages_.size() < parameters_.size()) {
    const Tensor& value = parameters_.value(parameters_[averages_.size()]);
    averages_.push_back(Tensor(parameters_.device(), value.rows(), value.width(), "average"));
  }
}

void Averages::update(std::source_location from) {
  if (swapped_) throw MisuseError("averages: an update while swapped; expected swap() before it");
  const std::size_t known = averages_.size();
  make_missing();
  ++updates_;
  const double share = options_.decay == 0 ? 1 / static_cast<double>(updates_) : 1 - options_.decay;
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    const Tensor& value = parameters_.value(parameters_[i]);
    if (i >= known) {
      apply(parameters_.device(), op::scale, copy_of(value), averages_[i], from);
      continue;
    }
    // average += share * (value - average)
    apply(parameters_.device(), op::sgd, {.in = {value}, .attributes = op::at_rate(-share, -1), .write = Write::add},
          averages_[i], from);
  }
}

void Averages::swap(std::source_location from) {
  if (averages_.empty()) return;
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
  for (std::size_t i = 0; i < averages_.size(); ++i) {
    all.push_back({parameters_.name(parameters_[i]), averages_[i]});
  }
  return all;
}

void Averages::restore(std::uint64_t updates) {
  updates_ = updates;
  if (updates > 0) make_missing();
}

}  // namespace windrow
