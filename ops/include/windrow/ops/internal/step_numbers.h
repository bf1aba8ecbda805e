// The numbers that a step of an optimiser depends on. A tensor holds them, so a captured step uses the current ones.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstdint>
#include <limits>

#include "windrow/ops/internal/matrix.h"

namespace windrow {

/// A row of `count` floats, in the order of the members. See the operators named *_step for the use of each. A value.
struct StepNumbers {
  float rate = 0;  ///< learning rate
  /// The gradient is multiplied by this first. With 0 the step changes nothing, whatever the gradient is.
  float scale = 1;
  float most = std::numeric_limits<float>::infinity();  ///< elements of the scaled gradient are clipped to +-most
  /// For limit_norm: the largest norm of all gradients together, after scaling.
  float most_norm = std::numeric_limits<float>::infinity();
  float penalty = 0;  ///< penalty * value is added to the clipped gradient: the gradient of an L2 term
  float decay = 0;    ///< the value is multiplied by 1 - rate * decay before the step (Loshchilov and Hutter 2019)
  float first = 0, second = 0;                        ///< coefficients; each operator has its own meaning
  float first_correction = 1, second_correction = 1;  ///< of Adam: 1 - coefficient^t for step t, counted from 1
  float epsilon = 0;
  /// The scaled gradient is multiplied by this, too: 1, unless limit_norm needs a factor that no float holds.
  float scale_again = 1;
  float first_tail = 0, second_tail = 0;  ///< parts that rounding removed: the exact one is first + first_tail

  static constexpr Index count = 14;

  const float* begin() const { return &rate; }
  /// Sets the corrections to those of step `step`, counted from 1.
  void correct(std::uint64_t step);
  /// Reads a row that a tensor holds.
  static StepNumbers of(const float* row);
};
static_assert(sizeof(StepNumbers) == StepNumbers::count * sizeof(float));

}  // namespace windrow
