// The model of a checkpoint: what a program needs to make it again.
#pragma once

#include <string>

#include "windrow/models/workload.h"
#include "windrow/training/checkpoint_folder.h"

namespace windrow::program {

/// The document of checkpoints that programs write.
inline const RecordFormat training_format{.name = "windrow training", .newest_version = 1};

/// A model as a record "model" of that document.
Record model_record(const Workload& workload);
/// Throws FileError unless `saved` is the model that the flags and the data have made. `place` says where it is from.
void require_same_model(const Record& saved, const Record& made, const std::string& place);

/// Loads the newest checkpoint that is not damaged; prints a line on standard error for each that is. Throws FileError
/// if there is none.
SavedCheckpoint newest_checkpoint(const std::string& folder);

/// A model for use. A value.
struct SavedModel {
  std::string name;         ///< of the workload
  WorkloadOptions options;  ///< with the vocabularies, without a folder of data
  bool generated;           ///< its data were generated
};
/// Throws FileError for a checkpoint that no program wrote.
SavedModel saved_model(const SavedCheckpoint& checkpoint);

}  // namespace windrow::program
