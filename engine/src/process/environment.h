// Settings from environment variables: defaults of EngineOptions, and the file of a trace.
#pragma once

#include <optional>
#include <string>

#include "windrow/engine/engine.h"

namespace windrow {

/// Throws MisuseError if the options depend on an invalid value in the environment.
void refuse_wrong_environment(EngineOptions& options);

/// The number of this process among those that a launcher has started together; none without a launcher. Reads the
/// variables of Open MPI, of launchers with PMI, and of Slurm.
std::optional<int> process_number();

/// The path at which the calling engine must save its trace, from WINDROW_TRACE; empty if that is not set. Each call
/// returns another path: "run.json", "run.2.json", "run.3.json"; in process 4 of a launcher "run.4.json",
/// "run.4.2.json".
std::string trace_path_from_environment();

}  // namespace windrow
