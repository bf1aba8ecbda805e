// The weights that a new training begins with: --init-from.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "windrow/models/workload.h"

namespace windrow::program {

/// Adds --init-from, which excludes --resume. Call it after the flags of saving.
void add_init_flag(CLI::App& command, std::string& to);

/// Sets the parameters to those of a run's newest checkpoint, or of a checkpoint that is named by one of its files;
/// words and labels are found by name. The trained model is in the memory of `host` meanwhile. Prints a line. Returns a
/// number that tells checkpoints apart. Throws FileError if there is none, or if it is of another model; the parameters
/// are unchanged then.
std::int64_t initialise(Workload& workload, const std::string& from, const Device& host);

}  // namespace windrow::program
