// A folder of checkpoints: tensors and a record for each of the last steps.
//
//   windrow::CheckpointWriter writer("run", {.keep = 3});
//   writer.write({.step = 300, .tensors = {{"w", {3, 4}, values}}, .document = record});
//
//   windrow::CheckpointWriter later("run", {.resume = true});  // another process; refused unless it says so
//   const windrow::NewestCheckpoint newest = windrow::CheckpointFolder("run").newest();
//   if (newest.checkpoint) newest.checkpoint->tensors.read("w", {3, 4}, values);
//
// Step 300 consists of 000000000300.safetensors and of the manifest 000000000300.json. The manifest is written last. It
// names the tensor file, its checksums, and its own. A checkpoint exists when its manifest does.
//
// Knows no parameters and no optimisers.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "windrow/training/internal/file_calls.h"
#include "windrow/training/record.h"
#include "windrow/training/tensor_file.h"

namespace windrow {

class OpenFile;

/// A checkpoint to be written; see NamedArray.
struct CheckpointContents {
  std::uint64_t step = 0;
  std::vector<NamedArray> tensors = {};
  Record document = {};
};

/// A checkpoint whose checksums were verified when it was loaded. An owner of the open tensor file.
struct SavedCheckpoint {
  std::uint64_t step;
  Record document;
  TensorFile tensors;
};

struct NewestCheckpoint {
  std::optional<SavedCheckpoint> checkpoint;
  /// One line for each newer checkpoint that cannot be loaded, with the reason; the newest one first.
  std::vector<std::string> skipped;
};

/// The checkpoints in a folder, for reading. A handle.
///
/// Errors: FileError if the folder cannot be read.
/// Threads: calls may run on any thread, and beside a writer in this or another process. A checkpoint that a writer
/// deletes before it was opened counts as damaged; newest() then looks for the one that replaced it.
class CheckpointFolder {
 public:
  /// `calls` must outlive this object.
  explicit CheckpointFolder(std::filesystem::path path, const FileCalls& calls = FileCalls::of_system())
      : path_(std::move(path)), calls_(&calls) {}

  const std::filesystem::path& path() const { return path_; }
  /// The steps that have a manifest, in ascending order.
  std::vector<std::uint64_t> steps() const;
  /// Reads the whole checkpoint once to verify it. Throws FileError if it is missing or damaged.
  SavedCheckpoint load(std::uint64_t step) const;
  /// Loads the checkpoint with the highest step that is not damaged.
  NewestCheckpoint newest() const;

 private:
  std::filesystem::path path_;
  const FileCalls* calls_;
};

struct CheckpointWriterOptions {
  static constexpr std::size_t all = std::numeric_limits<std::size_t>::max();
  /// Older checkpoints are deleted; at least 1.
  std::size_t keep = 3;
  /// Allows a folder that has checkpoints: the run continues from one of them (CheckpointFolder::newest()). Without it,
  /// such a folder is refused: its old checkpoints could count as newer than the first ones of this run, which would
  /// then be deleted.
  bool resume = false;
};

/// The only writer of a folder of checkpoints. An owner of the lock on the folder, which ends with the process.
///
/// Threads: calls on one object must not overlap.
class CheckpointWriter {
 public:
  /// Makes the folder, and its parents, if they do not exist. Make the writer before the training, so that an unusable
  /// folder is found early. Throws FileError if files cannot be made in the folder, if another writer, in this or
  /// another process, has locked it, and if it has checkpoints, unless `resume`. Throws MisuseError if `keep` is 0.
  /// `calls` must outlive this object.
  explicit CheckpointWriter(std::filesystem::path path, CheckpointWriterOptions options = {},
                            const FileCalls& calls = FileCalls::of_system());
  ~CheckpointWriter();

  /// Writes a checkpoint, or replaces that of the same step. When this returns, it survives a loss of power. Then
  /// deletes each older checkpoint if `keep` newer ones are not damaged; for this, checkpoints of earlier processes are
  /// verified once. Also removes the files of interrupted writes.
  ///
  /// Throws MisuseError for contents that write_tensor_file() or Record::json() refuse, and FileError if writing fails.
  /// Earlier checkpoints are untouched then. If only a deletion fails, the new checkpoint has been written.
  void write(const CheckpointContents& contents);

 private:
  enum class Condition { good, damaged };

  void remove_leftovers();
  void delete_old(std::uint64_t written);
  Condition condition(std::uint64_t step);

  const FileCalls& calls_;
  const CheckpointFolder folder_;
  const CheckpointWriterOptions options_;
  const std::unique_ptr<OpenFile> lock_;
  std::map<std::uint64_t, Condition> known_;  // of the steps that this object has written or verified
  /// By step: the file that its manifest names, or empty if that is not known. Manifests contain vocabularies, so
  /// reading all of them for each checkpoint would take long.
  std::map<std::uint64_t, std::string> tensor_files_;
};

}  // namespace windrow
