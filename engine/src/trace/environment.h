// What the environment says of traces.
#pragma once

#include <string>

namespace windrow {

/// Where the engine that asks has to save its trace, from WINDROW_TRACE; empty if that is not set. Each call is given
/// another path: "run.json", "run.2.json", "run.3.json".
std::string trace_path_from_environment();

}  // namespace windrow
