// Parameters, optimisers and averages in checkpoints.
//
//   windrow::CheckpointWriter writer("run");
//   writer.write(windrow::Snapshot({parameters, &optimiser}).contents(step));
//
//   const auto newest = windrow::CheckpointFolder("run").newest();
//   if (newest.checkpoint) windrow::restore(*newest.checkpoint, {parameters, &optimiser});
//
// A parameter's tensor has the parameter's name. The states of an optimiser are named "optimiser/" and
// OptimiserTensor::name, and averages "average/" and the parameter's name. The record "training" of the document has
// the rest. A caller may add records, and tensors whose names begin with a word and a slash.
//
// In a checkpoint of several sets of parameters, each set has a name; all names above then begin with it and a slash:
//
//   windrow::Snapshot snapshot({encoder, &slow, nullptr, "encoder"});
//   snapshot.add({decoder, &fast, nullptr, "decoder"});
//   ...
//   windrow::restore(checkpoint, {.parameters = encoder, .name = "encoder"});  // in a program without that decoder
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "windrow/batching/parameters.h"
#include "windrow/training/checkpoint_folder.h"
#include "windrow/training/optimiser.h"

namespace windrow {

/// The objects of one training. References; null ones are left out.
struct TrainingParts {
  Parameters& parameters;
  Optimiser* optimiser = nullptr;
  Averages* averages = nullptr;
  /// The name of this set in the checkpoint; without a slash, and not "optimiser" or "average". Empty in a checkpoint
  /// of one set.
  std::string name = {};
};

/// A copy of all parts in the host's memory. A value.
///
/// With a sharded update (data_parallel.h), all members add such parts at the same time. Rank 0 gets the states of all
/// members, so its snapshot is that of an update that is not sharded. The others get their own states.
class Snapshot {
 public:
  /// Waits for the steps pushed so far. Throws OpError if one of them failed, and MisuseError between steps (see
  /// Optimiser::between_steps()), while averages are swapped, and for a name that is not allowed.
  explicit Snapshot(const TrainingParts& parts) { add(parts); }

  /// Adds another set. Throws as the constructor does, and MisuseError for a name that is taken.
  void add(const TrainingParts& parts);

  /// For CheckpointWriter::write(). The arrays are views of this snapshot.
  CheckpointContents contents(std::uint64_t step) const;

 private:
  struct Copy {
    std::string name;
    Index rows, width;
    std::vector<float> elements;
  };

  std::vector<Copy> copies_;
  std::vector<std::pair<std::string, Record>> trainings_;  // by name in the document
};

/// Sets all parts to those of a checkpoint, and freezes the parameters that were frozen. Pushes ops and returns. Call
/// it before the first step. The parameters need not be in the same order. Averages that a checkpoint lacks begin anew.
///
/// Throws FileError if a parameter is missing in the file or has another shape there, or if the file has more
/// parameters under TrainingParts::name. Also throws it if a parameter is frozen now but was not then, and for another
/// optimiser. The parameters are unchanged then; optimiser and averages must not be used any more. Without an
/// optimiser, nothing is frozen. With a sharded update, an optimiser takes the states of this member's parameters,
/// whichever member kept them before.
void restore(const SavedCheckpoint& checkpoint, const TrainingParts& parts);

/// Sets the parameters for inference: to the averages if the checkpoint has some, otherwise to the parameters. `name`
/// is TrainingParts::name. Throws FileError as restore() does.
void restore_for_use(const SavedCheckpoint& checkpoint, Parameters& parameters, const std::string& name = {});

}  // namespace windrow
