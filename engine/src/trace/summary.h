// The summary of a trace.
#pragma once

#include "trace/graph.h"
#include "windrow/engine/trace.h"

namespace windrow {

TraceSummary summarise(const TraceGraph& graph);

}  // namespace windrow
