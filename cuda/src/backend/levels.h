// Kernels that compute all levels of a pass in one launch. Pure: knows no device.
//
// A grid of teams stays on the device for the whole pass. The teams form groups, and each group computes some samples,
// which do not depend on the others. A team owns some columns of every block of columns (see fusion.h), for all rows of
// its group, and keeps its columns of the products' matrices in shared memory. So a team mostly reads what it wrote
// itself. Only the rows of products come from all teams of the group; it waits at a barrier where these may have
// changed. (Diamos et al., Persistent RNNs, 2016.)
//
// There are two kinds of such kernels. One has a single group of as many teams as there are columns; each team
// multiplies rows of device memory. The other (Grid::groups) has groups that are as small as their matrices allow. Its
// teams compute 16 rows at a time, which they first copy to shared memory, for all products and elementwise operators;
// products with rounded operands run on tensor cores.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "windrow/batching/internal/plan.h"
#include "windrow/cuda/device.h"

namespace windrow::cuda {

struct FusedPlan;

/// The limits of a device for such a kernel.
struct Grid {
  int teams = 0;  ///< teams that can run at the same time; 0: no such kernels
  std::size_t shared_bytes = 0;
  std::size_t argument_bytes = 4096;  ///< the most that a kernel's argument may have
  bool groups = false;                ///< see above
  Precision precision = Precision::float32;
};

struct LevelsKernel {
  std::string name;
  std::string code;
  int teams = 0;        ///< of a group
  int most_groups = 1;  ///< that can run at the same time
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

/// Words that the kernel reads for each group: two counters of its barrier, zero before and after each launch.
inline constexpr std::size_t words_of_barrier = 2;
/// Then, for each group: its first batch, and the number behind its last one.
inline constexpr std::size_t words_of_group = 2;
/// Then, for each batch: its type, first row and number of rows; and, for the first batch of a set of independent
/// batches, the size of the set.
inline constexpr std::size_t words_of_batch = 4;

/// The phase is Phase::level or Phase::back_level. Returns nothing if the levels contain anything but products with
/// tensors and fused kernels of one width, or if the matrices do not fit into shared memory.
std::optional<LevelsKernel> print_levels(const Plan& plan, const FusedPlan& fused, Phase phase, const Grid& grid);

}  // namespace windrow::cuda
