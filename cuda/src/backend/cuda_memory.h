// The words of a minibatch that the printed kernels read: where the slots of rows lie, and the batches of levels.
#pragma once

#include <array>
#include <vector>

#include "windrow/batching/internal/minibatch_memory.h"
#include "windrow/batching/internal/plan.h"

namespace windrow::cuda {

struct CudaPlan;

/// Adds words for fused kernels to those that are copied to the device. Pure data.
struct CudaMemory final : MinibatchMemory {
  /// `whole`: batches are not divided.
  CudaMemory(const Device& device, const Plan& plan, const CudaPlan& cuda, const Layout& layout, bool whole);

  // Where the words begin:
  std::vector<std::vector<std::size_t>> lists;  ///< by type, and by number in FusedPlan::lists
  /// By number in FusedPlan::levels: what the kernel reads; see levels.h.
  struct Batches {
    std::size_t first = 0;  ///< of the layout's batches; launches compute those before it
    std::size_t begin = 0;
    Index count = 0;         ///< of the batches of all groups; 0: the kernel is not used
    std::size_t groups = 0;  ///< of teams
  };
  std::array<Batches, 2> batches;
};

}  // namespace windrow::cuda
