// What recordings of programs over graphs depend on.
#pragma once
#include "windrow/engine/requirements.h"

#include <cstdint>

#include "windrow/batching/graph.h"

namespace windrow {

/// A hash of the number of vertices, their children and their kinds, and not of inputs: StaticInputs::key of a Static
/// (windrow/ops/static.h) or a StaticBlock whose body applies operators vertex by vertex, for graphs of different
/// structure. Two structures of a million have the same key with a probability of about 3e-8. Pass inputs, such as word
/// numbers, as tensors.
std::uint64_t structure_key(const GraphData& graph);

}  // namespace windrow
