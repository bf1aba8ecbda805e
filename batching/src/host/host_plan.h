// Plans lowered for the host: kernels, tiles, and transposed copies that a minibatch may do without. Pure data.
//
// A fused segment runs tile by tile, so that the output of a step is still in the cache when the next step reads it.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "windrow/batching/backend/plan.h"
#include "windrow/memory/allocator.h"

namespace windrow {

struct HostStep : Step {
  Kernel<float> kernel = {};  ///< null unless it applies an operator
  /// Of a product with a transposed copy: the equivalent product without it, for minibatches that make no copy.
  struct Direct {
    const Operator* op = nullptr;  ///< null: there is none
    Kernel<float> kernel = {};
    Place factor = {};
  } direct = {};
};

struct HostSegment {
  bool tiled;
  Rate rate;
  std::vector<HostStep> steps = {};
  Index tile_rows = 0;
};

/// See TensorStep.
struct HostTensorStep {
  HostStep step;
  int vertex_type = -1;
  Phase after = Phase::back_lazy;  ///< the phase of the vertex type that leaves what it reads of the vertices
};

struct HostPlan {
  struct Cost {
    Index segments = 0, steps = 0;       ///< per batch
    Index multiply_flops = 0, work = 0;  ///< floating point operations per row: of products, and in total
  };
  struct Type {
    std::array<std::vector<HostSegment>, phase_count> phases;
    std::vector<Index> local_offsets;  ///< of the values in tiles: elements from the start of scratch
    Index scratch = 0;                 ///< the most elements that the tiles of one segment take
    std::array<std::array<Cost, 2>, phase_count> costs = {};         ///< by phase and rate
    std::array<std::vector<std::size_t>, phase_count> tensors = {};  ///< by phase: that its steps read, ascending
  };
  std::vector<Type> types = {};
  std::vector<HostTensorStep> before = {}, after = {};
  /// A transposed copy that is used only by products with an alternative: the types and phases of these products.
  struct Copy {
    std::size_t tensor;
    struct User {
      std::size_t type;
      Phase phase;
      Rate rate;
    };
    std::vector<User> users;
  };
  std::vector<Copy> copies = {};
};

/// Elements, rounded up so that what follows them is aligned.
inline Index aligned(Index elements) {
  return static_cast<Index>(aligned_size(static_cast<std::size_t>(elements) * sizeof(float)) / sizeof(float));
}

/// Throws MisuseError for an operator that the table has no kernel for.
HostPlan lower(const Plan& plan, const KernelTable<float>& kernels);

}  // namespace windrow
