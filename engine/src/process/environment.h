// What environment variables set: defaults of EngineOptions, and the file of a trace.
#pragma once

#include "windrow/engine/engine.h"

namespace windrow {

/// Throws MisuseError if the options depend on a wrong value in the environment.
void refuse_wrong_environment(EngineOptions& options);

/// The path at which the calling engine must save its trace, from WINDROW_TRACE; empty if that is not set. Each call
/// returns another path: "run.json", "run.2.json", "run.3.json".
std::string trace_path_from_environment();

}  // namespace windrow
