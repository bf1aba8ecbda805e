// Checkpoints of known content, for tests of folders of checkpoints.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "windrow/training/checkpoint_folder.h"

namespace windrow::testing {

/// What a checkpoint contains. `version` tells two checkpoints of one step apart.
struct KnownCheckpoint {
  std::uint64_t step;
  std::uint64_t version = 0;

  std::vector<float> weights = std::vector<float>(40, static_cast<float>(step * 10 + version));
  std::vector<std::uint64_t> counts = {step, version};

  CheckpointContents contents() const {
    return {.step = step,
            .tensors = {{"weights", {8, 5}, weights}, {"counts", {2}, counts}},
            .document = Record().set("step", step).set("version", version).set("rate", 0.1)};
  }
};

inline bool operator==(const SavedCheckpoint& saved, const KnownCheckpoint& known) {
  std::vector<float> weights(40);
  std::vector<std::uint64_t> counts(2);
  saved.tensors.read("weights", {8, 5}, weights);
  saved.tensors.read("counts", {2}, counts);
  return saved.step == known.step && weights == known.weights && counts == known.counts &&
         saved.document == known.contents().document;
}

}  // namespace windrow::testing
