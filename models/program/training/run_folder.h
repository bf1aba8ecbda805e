// The folder of a training: its checkpoints, its options, and a line for each epoch. Also initialises a new training
// from such a folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "windrow/models/trainer.h"
#include "windrow/training/record.h"

namespace CLI {
class App;
}

namespace windrow::program {

/// Writes the options of a command to the folder, except those that concern one call: whether it resumes, and how it
/// prints. Paths become absolute; those of --train and --valid are the files that the workload found. Throws FileError.
void save_options(const CLI::App& command, const std::string& folder, const Workload& workload);

/// An epoch that has ended and was scored. Scores are by the names of the metrics; there are none without a validation
/// set.
Record epoch_record(const Trainer& trainer, const Trainer::Pass& pass, const std::vector<Metric>& score,
                    const Workload& workload);
/// The values by their names.
Record metrics_record(const std::vector<Metric>& metrics);

/// The file epochs.jsonl of a folder has a line for each epoch. Of an earlier run of the training, keeps and returns
/// the epochs up to `last`; drops later ones, because they will be repeated. Throws FileError.
std::vector<Record> keep_epochs(const std::string& folder, std::uint64_t last);
/// Throws FileError.
void add_epoch(const std::string& folder, const Record& epoch);

/// Adds --init-from, which excludes --resume. Call it after the flags of saving.
void add_init_flag(CLI::App& command, std::string& to);

/// Sets the parameters to those of a run's newest checkpoint, or of the checkpoint of which `from` names a file.
/// Matches words and labels by name. The trained model is in the memory of `host` meanwhile. Prints a line. Returns a
/// number that identifies the checkpoint. Throws FileError if there is none, or if it is of another model; the
/// parameters are unchanged then.
std::int64_t initialise(Workload& workload, const std::string& from, const Device& host);

}  // namespace windrow::program
