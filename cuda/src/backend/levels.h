// Kernels that compute all levels of a pass in one launch. Pure: knows no device.
//
// A grid of teams stays on the device for the whole pass. Each team has some columns of every block of columns (see
// fusion.h), for all rows, and keeps its columns of the products' matrices in shared memory. So what a team writes is
// mostly what it reads itself; only the rows of products come from all teams, and the grid waits at a barrier where
// they may have changed. (Diamos et al., Persistent RNNs, 2016.)
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "windrow/batching/internal/plan.h"

namespace windrow::cuda {

struct FusedPlan;

/// What a device has for such a kernel.
struct Grid {
  int teams = 0;  ///< that run at the same time; 0: there are no such kernels
  std::size_t shared_bytes = 0;
  std::size_t argument_bytes = 4096;  ///< the most of a kernel's argument
};

struct LevelsKernel {
  std::string name;
  std::string code;
  int teams = 0;
  std::size_t shared_bytes = 0;
  /// What it computes for a batch of a type, in order. Its argument has a struct for each.
  struct Part {
    std::size_t type;
    const Step* product;     ///< null: a fused kernel
    std::size_t number = 0;  ///< of that
  };
  std::vector<Part> parts;
  std::size_t barriers = 0;  ///< for each group of batches
};

/// Words that the kernel finds for each batch: its type, its first row and number of rows; and, for the first of a
/// group of batches of which none depends on another one, their number.
inline constexpr std::size_t words_of_batch = 4;
/// Number of 32-bit barrier counters; zero before and after each launch.
inline constexpr std::size_t words_of_barrier = 2;

/// For Phase::level or Phase::back_level. Nothing if the levels contain something else than products with tensors and
/// fused kernels of one width, or if the matrices do not fit into shared memory.
std::optional<LevelsKernel> print_levels(const Plan& plan, const FusedPlan& fused, Phase phase, const Grid& grid);

/// What the code of these kernels uses; in levels_prelude.cc.
extern const char* const levels_prelude;

}  // namespace windrow::cuda
