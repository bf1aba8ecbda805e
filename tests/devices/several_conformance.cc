// Kernels that compute several calls at once, against the same calls one by one.
#include "tests/devices/conformance.h"
#include "tests/filled.h"
#include "windrow/ops/internal/step_numbers.h"

namespace windrow::testing {
namespace {

/// Several have one result, whose later sums are added.
TEST_P(KernelsOnDevice, SumsColumnsOfSeveralTensorsAsOfEach) {
  constexpr Index heights[] = {0, 1, 255, 257, 700, 5000};
  constexpr std::size_t count = 75, results = 31;
  const Kernel<float> kernel = device.kernels.find(op::column_sum);
  std::vector<Tensor> terms, one_by_one, at_once;
  std::vector<Access> accesses;
  for (std::size_t k = 0; k < count; ++k) {
    const auto width = static_cast<Index>(1 + k % results * 7);
    terms.push_back(filled(device, heights[k % std::size(heights)], width, 0.3f + static_cast<float>(k)));
    accesses.push_back(read(terms.back().var()));
    if (k >= results) continue;
    one_by_one.push_back(filled(device, 1, width, 2));
    at_once.push_back(filled(device, 1, width, 2));
    accesses.push_back(mutate(at_once.back().var()));
  }
  const auto write_of = [](std::size_t k) { return k < results && k % 2 == 0 ? Write::overwrite : Write::add; };
  for (std::size_t k = 0; k < count; ++k) {
    apply(device, op::column_sum, {.in = {terms[k]}, .write = write_of(k)}, one_by_one[k % results]);
  }
  device.engine->push(
      [&](OpContext& op) {
        std::vector<Matrix<const float>> in;
        for (const Tensor& one : terms) in.push_back(one.view().read(op.lane()));
        std::vector<KernelCall<float>> calls;
        for (std::size_t k = 0; k < count; ++k) {
          calls.push_back({.in = {&in[k], 1},
                           .out = at_once[k % results].view().update(op.lane()),
                           .write = write_of(k),
                           .op = &op::column_sum,
                           .lane = op.lane()});
        }
        kernel.each(calls, *device.memory);
      },
      accesses, {.name = "sums", .lane = device.lane});
  for (std::size_t i = 0; i < results; ++i) EXPECT_EQ(at_once[i].get(), one_by_one[i].get()) << i;
}

/// More than a launch takes, of shapes with and without gaps between their rows.
TEST_P(KernelsOnDevice, AppliesAnOperatorToSeveralTensorsAsToEach) {
  constexpr Index count = 37;
  const Operator* const steps[] = {&op::sgd_step, &op::momentum_step, &op::adagrad_step, &op::rmsprop_step,
                                   &op::adam_step};
  for (const Operator* const step : steps) {
    SCOPED_TRACE(step->name.text());
    const StepNumbers numbers{.rate = 0.1f, .scale = 0.5f, .most = 3, .first = 0.9f, .second = 0.99f, .epsilon = 1e-3f};
    const Tensor rows = filled(device, count, StepNumbers::count, 0);
    std::vector<float> all;
    for (Index k = 0; k < count; ++k) {
      StepNumbers one = numbers;
      one.scale = k == 5 ? 0 : 1 / static_cast<float>(k + 1);
      all.insert(all.end(), one.begin(), one.begin() + StepNumbers::count);
    }
    rows.set(all);
    std::vector<Tensor> one_by_one, at_once;
    std::vector<windrow::Applied> applied;
    for (std::vector<Tensor>* const of : {&one_by_one, &at_once}) {
      for (Index k = 0; k < count; ++k) {
        const Index height = k % 4, width = 1 + k * k % 50;
        const Tensor gradient = filled(device, height, width, 0.3f + static_cast<float>(k));
        Operands operands{.in = {gradient, rows.row_range(k, k + 1)}, .write = Write::add};
        for (std::size_t s = 0; s < step->states; ++s) operands.states.push_back(filled(device, height, width, 0.25f));
        const Tensor value = filled(device, height, width, 2);
        of->push_back(value);
        of->insert(of->end(), operands.states.begin(), operands.states.end());
        if (of == &at_once) {
          applied.push_back({std::move(operands), value});
        } else {
          apply(device, *step, operands, value);
        }
      }
    }
    apply_each(device, *step, applied);
    for (std::size_t i = 0; i < one_by_one.size(); ++i) EXPECT_EQ(at_once[i].get(), one_by_one[i].get()) << i;
  }
  apply_each(device, op::sgd_step, {});
  const Tensor value = filled(device, 2, 2, 1), other = filled(device, 2, 3, 1),
               numbers = filled(device, 1, StepNumbers::count, 1);
  const Operands fit{.in = {value, numbers}, .write = Write::add};
  const Tensor changed = filled(device, 2, 2, 7);
  EXPECT_THROW(apply_each(device, op::sgd_step, {{fit, changed}, {fit, other}}), MisuseError);
  EXPECT_EQ(changed.get(), Floats(4, 7));  // nothing was pushed
}

}  // namespace
}  // namespace windrow::testing
