// The models of checkpoints, as the programs check and find them.
#pragma once

#include <string>

#include "windrow/models/saved_model.h"

namespace windrow::program {

/// Throws FileError unless `saved` is the model that the flags and the data have made. `place` says where it is from.
void require_same_model(const Record& saved, const Record& made, const std::string& place);

/// "--batch 32 (was 64), --rate 0.01 (was 0.002)": the flags in both records whose values differ; empty if there is
/// none.
std::string changed_flags(const Record& saved, const Record& now);

/// Loads the newest checkpoint that is not damaged; prints a line on standard error for each that is. Throws FileError
/// if there is none.
SavedCheckpoint newest_checkpoint(const std::string& folder);

}  // namespace windrow::program
