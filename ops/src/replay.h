// The analysis of a recording: an order for its ops, places for its tensors, and an engine graph that runs them.
#pragma once

#include <source_location>

#include "recorder.h"
#include "windrow/engine/graph.h"
#include "windrow/ops/static.h"

namespace windrow {

/// A recording that is ready to be launched. The graph keeps the recording's buffers.
struct Replay {
  Graph graph = {};
  std::size_t ops = 0, planned_bytes = 0, unshared_bytes = 0;
};

/// Buffers that were made in the body, and that only the recording holds, get places in one block for each lane's
/// memory. Throws MisuseError if an op reads such a buffer that none has written, or a buffer from outside that only
/// the recording holds; OutOfMemory.
Replay make_replay(Engine& engine, RecordedOps recording, const StaticOptions& options, std::source_location from);

}  // namespace windrow
