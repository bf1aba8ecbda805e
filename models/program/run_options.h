// The options of a training, kept beside its checkpoints, so that it goes on without them being typed again.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace windrow {
struct Workload;
}

namespace windrow::program {

/// Writes the options with which a command was called to the folder, but not those that concern one call: whether it
/// resumes, and how it prints. Paths become absolute; those of --train and --valid are where the workload found them.
/// Throws FileError.
void save_options(const CLI::App& command, const std::string& folder, const Workload& workload);

/// The arguments of `windrow train` that go on with the training in the folder: those that save_options() has written,
/// then `more`, which overrule these. Throws FileError if the folder has none.
std::vector<std::string> resuming_arguments(const std::string& folder, const std::vector<std::string>& more);

}  // namespace windrow::program
