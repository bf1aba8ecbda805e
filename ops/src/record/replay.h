// The analysis of a recording: an order for its ops, places for its tensors, and an engine graph that runs them.
#pragma once

#include <optional>
#include <source_location>
#include <unordered_map>
#include <vector>

#include "record/replayed_ops.h"
#include "windrow/engine/graph.h"
#include "windrow/ops/static.h"

namespace windrow {

/// A recording that is ready to be launched.
struct Replay {
  Graph graph = {};
  std::shared_ptr<const ReplayedOps> run = {};
  std::size_t ops = 0, accesses = 0, planned_bytes = 0, unshared_bytes = 0;
};

/// How often recordings hold a buffer.
using HeldBuffers = std::unordered_map<const Buffer*, long>;

/// Buffers that were made in the body, and that only the recording holds, get places in one block for each lane's
/// memory. `held` counts what earlier recordings hold. Throws MisuseError if an op reads such a buffer that none has
/// written, or uses the old contents of a buffer from outside that only recordings hold; OutOfMemory.
Replay make_replay(Engine& engine, RecordedOps recording, const HeldBuffers& held, const StaticOptions& options,
                   std::source_location from);

}  // namespace windrow
