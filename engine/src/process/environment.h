// What the environment says of engines that do not choose for themselves.
#pragma once

#include "windrow/engine/engine.h"

namespace windrow {

/// Throws MisuseError if the options depend on a wrong value in the environment.
void refuse_wrong_environment(EngineOptions& options);

}  // namespace windrow
