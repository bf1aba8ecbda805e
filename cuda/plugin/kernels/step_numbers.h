// Shared parts of the kernels of training steps.
#pragma once

#include "plugin/kernel_call.h"
#include "windrow/ops/internal/step_numbers.h"

namespace windrow::cuda {

/// The numbers of a step in device memory, ordered as the members of StepNumbers.
struct Numbers {
  const float* row;

  WINDROW_ON_DEVICE StepNumbers read() const {
    StepNumbers h;
    float* const to = &h.rate;
    for (int i = 0; i < StepNumbers::count; ++i) to[i] = row[i];
    return h;
  }
  void accesses(Accesses& to) const { to.reads(row, StepNumbers::count); }
};

}  // namespace windrow::cuda
