// What environment variables set: defaults of EngineOptions, and the file of a trace.
#pragma once

#include <optional>
#include <string>

#include "windrow/engine/engine.h"

namespace windrow {

/// Throws MisuseError if the options depend on a wrong value in the environment.
void refuse_wrong_environment(EngineOptions& options);

/// The number of this process among those that a launcher has started together; none if none has. As Open MPI,
/// launchers with PMI and Slurm say it in the environment.
std::optional<int> process_number();

/// The path at which the calling engine must save its trace, from WINDROW_TRACE; empty if that is not set. Each call
/// returns another path: "run.json", "run.2.json", "run.3.json"; in process 4 of a launcher "run.4.json",
/// "run.4.2.json".
std::string trace_path_from_environment();

}  // namespace windrow
