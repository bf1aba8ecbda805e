// Kernels that compute all levels of a pass in one launch. Pure: knows no device.
//
// A grid of teams stays on the device for the whole pass. Each team owns some columns of every block of columns (see
// fusion.h), for all rows, and keeps its columns of the products' matrices in shared memory. So a team mostly reads
// what it wrote itself. Only the rows of products come from all teams; the grid waits at a barrier where these may have
// changed. (Diamos et al., Persistent RNNs, 2016.)
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "windrow/batching/internal/plan.h"

namespace windrow::cuda {

struct FusedPlan;

/// The limits of a device for such a kernel.
struct Grid {
  int teams = 0;  ///< teams that can run at the same time; 0: no such kernels
  std::size_t shared_bytes = 0;
  std::size_t argument_bytes = 4096;  ///< the most that a kernel's argument may have
};

struct LevelsKernel {
  std::string name;
  std::string code;
  int teams = 0;
  std::size_t shared_bytes = 0;
  /// A part of the work for a batch of a type, in order. The kernel's argument has a struct for each part.
  struct Part {
    std::size_t type;
    const Step* product;     ///< null: a fused kernel
    std::size_t number = 0;  ///< of the fused kernel
  };
  std::vector<Part> parts;
  std::size_t barriers = 0;  ///< for each group of batches
};

/// Words that the kernel reads for each batch: its type, first row and number of rows; and, for the first batch of a
/// group of independent batches, the size of the group.
inline constexpr std::size_t words_of_batch = 4;
/// Number of 32-bit barrier counters; zero before and after each launch.
inline constexpr std::size_t words_of_barrier = 2;

/// The phase is Phase::level or Phase::back_level. Returns nothing if the levels contain anything but products with
/// tensors and fused kernels of one width, or if the matrices do not fit into shared memory.
std::optional<LevelsKernel> print_levels(const Plan& plan, const FusedPlan& fused, Phase phase, const Grid& grid);

}  // namespace windrow::cuda
