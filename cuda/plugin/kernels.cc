#include "kernels.h"

#include <cstring>

namespace windrow::cuda {

const KernelEntry* find_kernel(const char* op) {
  for (const KernelEntry* entry : {choices_kernels, elementwise_kernels, gradient_norm_kernels, images_kernels,
                                   linear_kernels, losses_kernels, rows_kernels, rowwise_kernels, scatter_kernels,
                                   segments_kernels, semiring_kernels, sgd_rows_kernels, training_step_kernels}) {
    for (; entry->op != nullptr; ++entry) {
      if (std::strcmp(entry->op, op) == 0) return entry;
    }
  }
  return nullptr;
}

}  // namespace windrow::cuda
