// Defaults of EngineOptions that environment variables set.
#pragma once

#include "windrow/engine/engine.h"

namespace windrow {

/// Throws MisuseError if the options depend on a wrong value in the environment.
void refuse_wrong_environment(EngineOptions& options);

}  // namespace windrow
