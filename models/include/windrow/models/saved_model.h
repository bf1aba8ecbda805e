// Models in checkpoints: what `windrow train --save` writes beside the parameters, and how a model is made from it.
//
//   windrow::Engine engine;
//   const windrow::Workload model = windrow::load_model(windrow::host_device(engine), "run");
//   const std::vector<std::string> lines = {"It works"};
//   for (const windrow::Prediction& prediction : model.network->predict(lines)) ...
//
// Fine-tuning: a model that begins with the weights of a trained one, whose words and labels may be others.
//
//   const windrow::Workload trained = windrow::load_model(host, "run");
//   windrow::Workload workload = windrow::make_workload("bilstm", host, {.data = "other"});
//   windrow::TakenWeights taken = windrow::take_weights(workload, trained);
#pragma once
#include "windrow/engine/requirements.h"

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "windrow/models/workload.h"
#include "windrow/training/checkpoint_folder.h"

namespace windrow {

/// The document of such checkpoints. It has a record "model".
inline const RecordFormat training_format{.name = "windrow training", .newest_version = 1};

/// The record "model" of a workload that is trained. Throws DataError if its words are not UTF-8, which a record needs.
Record model_record(const Workload& workload);

/// What a checkpoint knows of its model. A value.
struct SavedModel {
  std::string name;         ///< of the workload
  WorkloadOptions options;  ///< with the vocabularies, without a folder of data
  bool generated;           ///< its data were generated
};
/// Throws FileError for a checkpoint of something else.
SavedModel saved_model(const SavedCheckpoint& checkpoint);
/// The same for use without data: its options ask for one generated sample, which is not used. Throws likewise.
SavedModel model_alone(const SavedCheckpoint& checkpoint);

/// Why none of a folder's checkpoints could be loaded, in one line.
std::string why_no_checkpoint(const std::filesystem::path& folder, const NewestCheckpoint& newest);

/// Makes the workload with the parameters of the checkpoint, for use and not for more training. Throws as
/// make_workload() and restore_for_use() do.
Workload load_model(const Device& device, const SavedCheckpoint& checkpoint, const SavedModel& model);
/// The model of the newest checkpoint in a folder that is not damaged, for predictions: its samples are one that is
/// generated, and no data are read. Throws FileError if there is none.
Workload load_model(const Device& device, const std::filesystem::path& folder);

/// What was taken. A value.
struct TakenWeights {
  std::size_t parameters = 0;
  /// The names of one kind, such as words.
  struct Names {
    std::string what = {};  ///< NamedAxis::what
    std::size_t found = 0;  ///< that both models have
    std::size_t of = 0;     ///< of the model that takes
  };
  std::vector<Names> names = {};
};

/// Sets the parameters of `to` to those of `from` with the same names. Rows and columns that stand for words or labels
/// (Workload::named_axes) are taken by these: those of a word that `from` lacks keep their values, and those that stand
/// for no single word, such as for unknown ones, are taken in order. Call it before training, and before averages are
/// made. The workloads may be on different devices. Waits for both.
///
/// Throws MisuseError, which says what `from` has and what is expected, if the workloads are of different kinds, if one
/// lacks a parameter of the other, or if other sizes differ; and OpError if a step failed. The parameters are unchanged
/// then.
TakenWeights take_weights(Workload& to, const Workload& from);

}  // namespace windrow
