// The commands that use a trained model: `windrow eval`, `windrow predict` and `windrow sample`.
#pragma once

#include <functional>

#include "program.h"

namespace windrow::program {

/// Each adds a command; what it returns runs it, once the arguments have been parsed.
std::function<void()> add_eval(CLI::App& app);
std::function<void()> add_predict(CLI::App& app);
std::function<void()> add_sample(CLI::App& app);

}  // namespace windrow::program
