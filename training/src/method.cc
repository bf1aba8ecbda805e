// The methods that come with Windrow.
#include <cmath>
#include <string>

#include "windrow/engine/error.h"
#include "windrow/ops/operators.h"
#include "windrow/training/optimiser.h"

namespace windrow {
namespace {

/// Throws MisuseError unless 0 <= value < 1.
float coefficient(const char* what, double value) {
  if (value >= 0 && value < 1) return static_cast<float>(value);
  throw MisuseError(std::string(what) + " " + std::to_string(value) + "; expected 0 or more, and less than 1");
}
/// Throws MisuseError unless it is a number, 0 or more.
float not_negative(const char* what, double value) {
  if (value >= 0 && std::isfinite(value)) return static_cast<float>(value);
  throw MisuseError(std::string(what) + " " + std::to_string(value) + "; expected a number, 0 or more");
}

}  // namespace

Method Method::sgd() { return {.name = "sgd", .step = &op::sgd_step, .step_rows = &op::sgd_step_rows}; }

Method Method::momentum(Momentum options) {
  const float first = coefficient("momentum: coefficient", options.momentum);
  const float nesterov = options.form == Momentum::Form::nesterov ? 1 : 0;
  return {.name = "momentum",
          .step = &op::momentum_step,
          .step_rows = &op::momentum_step_rows,
          .coefficients = [=](std::uint64_t, StepNumbers& numbers) {
            numbers.first = first;
            numbers.second = nesterov;
          }};
}

Method Method::adagrad(Adagrad options) {
  const float epsilon = not_negative("adagrad: epsilon", options.epsilon);
  return {.name = "adagrad",
          .step = &op::adagrad_step,
          .step_rows = &op::adagrad_step_rows,
          .initial = not_negative("adagrad: initial sum", options.initial),
          .coefficients = [=](std::uint64_t, StepNumbers& numbers) { numbers.epsilon = epsilon; }};
}

Method Method::rmsprop(RmsProp options) {
  const float first = coefficient("rmsprop: smoothing", options.smoothing);
  const float epsilon = not_negative("rmsprop: epsilon", options.epsilon);
  return {.name = "rmsprop",
          .step = &op::rmsprop_step,
          .step_rows = &op::rmsprop_step_rows,
          .coefficients = [=](std::uint64_t, StepNumbers& numbers) {
            numbers.first = first;
            numbers.epsilon = epsilon;
          }};
}

Method Method::adam(Adam options) {
  coefficient("adam: first coefficient", options.first);
  coefficient("adam: second coefficient", options.second);
  not_negative("adam: epsilon", options.epsilon);
  return {.name = "adam",
          .step = &op::adam_step,
          .step_rows = &op::adam_step_rows,
          .coefficients = [=](std::uint64_t number, StepNumbers& numbers) {
            const auto power = static_cast<double>(number);
            numbers.first = static_cast<float>(options.first);
            numbers.second = static_cast<float>(options.second);
            numbers.first_correction = static_cast<float>(1 - std::pow(options.first, power));
            numbers.second_correction = static_cast<float>(1 - std::pow(options.second, power));
            numbers.epsilon = static_cast<float>(options.epsilon);
          }};
}

}  // namespace windrow
