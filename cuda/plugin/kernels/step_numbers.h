// What the kernels of training steps share.
#pragma once

#include "plugin/kernel_call.h"
#include "windrow/ops/internal/step_numbers.h"

namespace windrow::cuda {

/// The numbers of a step, in device memory, by the members of StepNumbers.
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

/// A matrix as one row, if none of those that belong together has gaps.
template <class T>
Matrix<T> flat(const Matrix<T>& matrix, bool dense) {
  const Index elements = matrix.rows * matrix.width;
  return dense && elements > 0 ? Matrix<T>{matrix.data, 1, elements, elements} : matrix;
}

}  // namespace windrow::cuda
