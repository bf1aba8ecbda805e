// The command `windrow simulate`.
#pragma once

#include <functional>

#include "program.h"

namespace windrow::program {

/// Adds the command; what it returns runs it, once the arguments have been parsed.
std::function<void()> add_simulate(CLI::App& app);

}  // namespace windrow::program
