// The setting for traces in the environment.
#pragma once

#include <string>

namespace windrow {

/// The path at which the calling engine must save its trace, from WINDROW_TRACE; empty if that is not set. Each call
/// returns another path: "run.json", "run.2.json", "run.3.json".
std::string trace_path_from_environment();

}  // namespace windrow
