// The methods that come with Windrow.
#include "checked.h"
#include "windrow/ops/operators.h"
#include "windrow/training/optimiser.h"

namespace windrow {
namespace {

float coefficient(const char* what, double value) {
  require_coefficient(what, value);
  return static_cast<float>(value);
}
/// The part that rounding to a float removes from a coefficient.
float tail_of(double value) { return static_cast<float>(value - static_cast<double>(static_cast<float>(value))); }

/// A value other than 0 must not round to 0.
float epsilon_of(const char* what, double value) {
  require_not_negative(what, value);
  if (value != 0) require_limit(what, value);
  return static_cast<float>(value);
}
float sum_of(const char* what, double value) {
  require_not_negative(what, value);
  return static_cast<float>(value);
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
  const float epsilon = epsilon_of("adagrad: epsilon", options.epsilon);
  return {.name = "adagrad",
          .step = &op::adagrad_step,
          .step_rows = &op::adagrad_step_rows,
          .initial = sum_of("adagrad: initial sum", options.initial),
          .coefficients = [=](std::uint64_t, StepNumbers& numbers) { numbers.epsilon = epsilon; },
          .rate = 1e-2};
}

Method Method::rmsprop(RmsProp options) {
  const float first = coefficient("rmsprop: smoothing", options.smoothing);
  const float epsilon = epsilon_of("rmsprop: epsilon", options.epsilon);
  return {.name = "rmsprop",
          .step = &op::rmsprop_step,
          .step_rows = &op::rmsprop_step_rows,
          .coefficients =
              [=, tail = tail_of(options.smoothing)](std::uint64_t, StepNumbers& numbers) {
                numbers.first = first;
                numbers.first_tail = tail;
                numbers.epsilon = epsilon;
              },
          .rate = 1e-2};
}

Method Method::adam(Adam options) {
  const StepNumbers numbers{.first = coefficient("adam: first coefficient", options.first),
                            .second = coefficient("adam: second coefficient", options.second),
                            .epsilon = epsilon_of("adam: epsilon", options.epsilon),
                            .first_tail = tail_of(options.first),
                            .second_tail = tail_of(options.second)};
  return {.name = "adam",
          .step = &op::adam_step,
          .step_rows = &op::adam_step_rows,
          .coefficients = [from = numbers](std::uint64_t step, StepNumbers& to) {
            to.first = from.first;
            to.second = from.second;
            to.first_tail = from.first_tail;
            to.second_tail = from.second_tail;
            to.epsilon = from.epsilon;
            to.correct(step);
          }};
}

}  // namespace windrow
