// Models in checkpoints: the data that `windrow train --save` writes beside the parameters, and functions that make a
// model from them.
//
//   windrow::Engine engine;
//   const windrow::Workload model = windrow::load_model(windrow::host_device(engine), "run");
//   const std::vector<std::string> lines = {"It works"};
//   for (const windrow::Prediction& prediction : model.network->predict(lines)) ...
//
// Fine-tuning: a model starts from the weights of a trained one, whose words and labels may differ.
//
//   const windrow::Workload trained = windrow::load_model(host, "run");
//   windrow::Workload workload = windrow::make_workload("bilstm", host, {.data = "other"});
//   windrow::TakenWeights taken = windrow::take_weights(workload, trained);
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "windrow/models/datasets.h"
#include "windrow/models/workload.h"
#include "windrow/training/checkpoint_folder.h"

namespace windrow {

/// The document of such checkpoints. It has a record "model".
inline const RecordFormat training_format{.name = "windrow training", .newest_version = 1};

/// The record "model" of a workload. Throws DataError if its words are not UTF-8, which a record needs.
Record model_record(const Workload& workload);

/// The data of its model in a checkpoint. A value.
struct SavedModel {
  std::string name;         ///< of the workload
  WorkloadOptions options;  ///< with the vocabularies, without a folder of data
  bool generated;           ///< its data were generated
};
/// Throws FileError for a checkpoint of something else.
SavedModel saved_model(const SavedCheckpoint& checkpoint);
/// The same for inference without data: the options ask for one generated sample, which is not used. Throws likewise.
SavedModel model_alone(const SavedCheckpoint& checkpoint);

/// Why none of a folder's checkpoints could be loaded, in one line.
std::string why_no_checkpoint(const std::filesystem::path& folder, const NewestCheckpoint& newest);

/// Makes the workload with the parameters of the checkpoint, for inference and not for more training. Throws as
/// make_workload() and restore_for_use() do.
Workload load_model(const Device& device, const SavedCheckpoint& checkpoint, const SavedModel& model);
/// Loads the newest undamaged checkpoint of a folder, for predictions. Reads no data; the workload has one generated
/// sample. Throws FileError if there is none.
Workload load_model(const Device& device, const std::filesystem::path& folder);

/// The result of take_weights(). A value.
struct TakenWeights {
  std::size_t parameters = 0;
  /// The names of one kind, such as words.
  struct Names {
    std::string what = {};  ///< NamedAxis::what
    std::size_t found = 0;  ///< names that both models have
    std::size_t of = 0;     ///< names of the model that takes them
  };
  std::vector<Names> names = {};
};

/// Sets the parameters of `to` to those of `from` with the same names. Rows and columns that stand for words or labels
/// (Workload::named_axes) are matched by these names. The row of a word that `from` lacks keeps its values. Rows that
/// stand for no single word, such as for unknown ones, are matched in order. Call it before training, and before
/// averages are made. The workloads may be on different devices. Waits for both.
///
/// Throws MisuseError if the workloads are of different kinds, if one lacks a parameter of the other, or if other sizes
/// differ; the text says what `from` has and what is expected. Throws OpError if a step failed. The parameters are
/// unchanged then.
TakenWeights take_weights(Workload& to, const Workload& from);

/// Writes a trained model as a file for load_program() (windrow/training/program.h), with its vocabularies and its
/// "labels" as lists. Throws FileError for a checkpoint without a model, and if writing fails. Throws MisuseError for a
/// model without outputs, and for one whose graphs depend on computed values.
void export_model(const Device& device, const SavedCheckpoint& checkpoint, const std::filesystem::path& to);

// Word vectors in text, such as pre-trained ones: the formats of GloVe (Pennington et al. 2014) and of word2vec
// (Mikolov et al. 2013).
//
//   the 0.418 0.24968 -0.41242 ...      a word and its numbers, separated by spaces or tabs, on each line
//   400000 300                          word2vec: a first line with the number of words, and of numbers per word
//
//   windrow::WordVectors found = windrow::set_word_vectors(workload, "glove.6B.300d.txt");
//   std::cout << found.rows << " of " << found.of << " words\n";

/// Selects the vectors that are read, and the memory for them.
struct WordVectorTable {
  std::size_t width;         ///< numbers per word, at least 1
  std::span<float> numbers;  ///< row after row
  /// The row of a word, or -1 if its vector is not wanted.
  std::function<std::int64_t(std::string_view word)> row_of;
  /// Called from time to time with the number of bytes read so far; may be empty.
  std::function<void(std::uint64_t bytes)> progress = {};
};

/// The result of reading. A value.
struct WordVectors {
  std::int64_t words = 0;           ///< in the file
  std::int64_t rows = 0;            ///< of the table that were set
  std::int64_t of = 0;              ///< rows that stand for a word; set_word_vectors() only
  std::int64_t left_out = 0;        ///< lines that are no vectors
  std::string first_left_out = {};  ///< what is wrong with the first of them, with its place
  /// The number of words that the first line of the file states, if it does. It is wrong if the file was shortened.
  std::optional<std::int64_t> announced = {};
};

/// Reads a file line by line, in memory for one line. Rows whose word the file lacks keep their numbers. If a word
/// occurs twice, its first vector counts. The last `width` fields of a line are its numbers, and the text before them
/// is the word. The word may contain blanks; in published files it may also be a blank, a tab or a NUL byte. The word
/// of the first line must not end in a number, because more numbers there mean a wider table. Throws DataError, which
/// names the line, if the first line is no vector of that width: if its numbers are too few, too many, or not finite
/// decimal ones. Later lines that are no vectors are left out and counted.
WordVectors read_word_vectors(std::istream& in, const std::string& name, const WordVectorTable& table);
/// The same from a file, which may be compressed (.gz), or a pipe. Throws DataError also if it is another kind of file
/// or cannot be opened.
WordVectors read_word_vectors(const std::filesystem::path& file, const WordVectorTable& table);

/// Sets the rows of the workload's word embedding whose words occur in the file. Call it before training. Throws
/// MisuseError if the workload has none, and DataError as read_word_vectors() does; the embedding is unchanged then.
WordVectors set_word_vectors(Workload& workload, const std::filesystem::path& file,
                             const std::function<void(std::uint64_t bytes)>& progress = {});

/// Writes the rows of the workload's word embedding that stand for a word, in the format of word2vec and as a whole
/// (whole_file.h). set_word_vectors() reads the same bits. Waits for the steps pushed so far. Returns the number of
/// words. Throws MisuseError if the workload embeds no words, OpError if a step failed, and FileError.
std::int64_t save_word_vectors(const Workload& workload, const std::filesystem::path& file);

}  // namespace windrow
