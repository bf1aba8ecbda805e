// The command `windrow export`, which writes a trained model as a program for inference.
#pragma once

#include <functional>

#include "program/output/program.h"

namespace windrow::program {

/// Adds the command; what it returns runs it, once the arguments have been parsed.
std::function<void()> add_export(CLI::App& app);

}  // namespace windrow::program
