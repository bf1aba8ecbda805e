#include "windrow/training/checkpoint_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "files/manifest.h"
#include "files/messages.h"
#include "files/open_file.h"
#include "windrow/engine/error.h"
#include "windrow/training/internal/whole_file.h"
#include "windrow/training/tensor_file.h"

namespace windrow {

std::vector<std::uint64_t> CheckpointFolder::steps() const {
  std::vector<std::uint64_t> steps;
  for (const std::string& name : list_folder(path_, *calls_)) {
    if (const auto step = step_of_manifest(name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

SavedCheckpoint CheckpointFolder::load(std::uint64_t step) const {
  const std::filesystem::path file = path_ / manifest_name(step);
  Manifest manifest = read_manifest(file, *calls_);
  if (manifest.step != step) {
    throw FileError(shown(file) + ": is the manifest of step " + std::to_string(manifest.step) + "; expected step " +
                    std::to_string(step));
  }
  TensorFile tensors(path_ / manifest.tensor_file, *calls_);
  require_same(tensors.sums(), manifest.sums, shown(tensors.path()));
  return {.step = step, .document = std::move(manifest.document), .tensors = std::move(tensors)};
}

NewestCheckpoint CheckpointFolder::newest() const {
  constexpr int most_lists = 16;
  std::vector<std::uint64_t> all = steps();
  for (int list = 1;; ++list) {
    NewestCheckpoint newest;
    for (auto step = all.rbegin(); step != all.rend() && !newest.checkpoint; ++step) {
      try {
        newest.checkpoint = load(*step);
      } catch (const FileError& error) {
        newest.skipped.push_back(error.what());
      }
    }
    if (newest.checkpoint || list == most_lists) return newest;
    // A writer may have deleted them after it had written others.
    std::vector<std::uint64_t> now = steps();
    if (now == all) return newest;
    all = std::move(now);
  }
}

namespace {

namespace fs = std::filesystem;

fs::path make_folder(const fs::path& path, const FileCalls& calls) {
  int made = calls.mkdir(path.c_str(), 0777);
  if (made != 0 && errno == ENOENT && !path.parent_path().empty()) {
    make_folder(path.parent_path(), calls);
    made = calls.mkdir(path.c_str(), 0777);
  }
  if (made == 0) {
    sync_folder(folder_of(path), calls);
  } else if (errno != EEXIST) {
    refuse_call(path, "mkdir", errno);
  } else if (struct stat status; calls.stat(path.c_str(), &status) == 0 && !S_ISDIR(status.st_mode)) {
    throw FileError(shown(path) + ": not a folder; expected a folder for checkpoints");
  }
  return path;
}

std::unique_ptr<OpenFile> lock_folder(const fs::path& path, const FileCalls& calls) {
  if (calls.access(path.c_str(), W_OK | X_OK) != 0) refuse_call(path, "access", errno);  // the lock may be there
  auto lock = std::make_unique<OpenFile>(path / "lock", OpenFlags{.flags = O_RDWR | O_CREAT, .mode = 0666}, calls);
  if (!lock->lock()) {
    throw FileError(shown(path) + ": another writer has locked this folder of checkpoints; expected one writer");
  }
  return lock;
}

void remove(const fs::path& file, const FileCalls& calls) {
  if (calls.unlink(file.c_str()) != 0 && errno != ENOENT) refuse_call(file, "unlink", errno);
}

/// An unused name for the tensor file of a step: the manifest that is to be replaced still names the old file.
std::string free_name(std::uint64_t step, const std::vector<std::string>& taken) {
  std::string name = step_name(step) + std::string(tensors_ending);
  for (std::uint64_t number = 2; std::find(taken.begin(), taken.end(), name) != taken.end(); ++number) {
    name = step_name(step) + "-" + std::to_string(number) + std::string(tensors_ending);
  }
  return name;
}

}  // namespace

CheckpointWriter::CheckpointWriter(fs::path path, CheckpointWriterOptions options, const FileCalls& calls)
    : calls_(calls),
      folder_(make_folder(path, calls), calls),
      options_(options),
      lock_(lock_folder(folder_.path(), calls)) {
  if (options.keep == 0) throw MisuseError("a folder that keeps 0 checkpoints; expected 1 or more");
  if (options.resume) return;
  const std::vector<std::uint64_t> steps = folder_.steps();
  if (steps.empty()) return;
  throw FileError(shown(folder_.path()) + ": has checkpoints of an earlier run, up to step " +
                  std::to_string(steps.back()) + "; expected another folder, or to resume that run");
}

CheckpointWriter::~CheckpointWriter() = default;

/// Removes what belongs to no checkpoint: files of interrupted writes, and tensor files that no manifest names. Keeps
/// tensor files beside a manifest that cannot be read. This object holds the lock, so nobody else is writing.
void CheckpointWriter::remove_leftovers() {
  const fs::path& folder = folder_.path();
  const std::vector<std::string> names = list_folder(folder, calls_);
  std::set<std::string> used;
  std::set<std::uint64_t> unreadable;
  for (const std::string& name : names) {
    const auto step = step_of_manifest(name);
    if (!step) continue;
    try {
      std::string& tensor_file = tensor_files_[*step];
      if (tensor_file.empty()) tensor_file = read_manifest(folder / name, calls_).tensor_file;
      used.insert(tensor_file);
    } catch (const FileError&) {
      unreadable.insert(*step);
    }
  }
  for (const std::string& name : names) {
    const auto step = step_of_tensors(name);
    const bool unused = step && !used.contains(name) && !unreadable.contains(*step);
    if (unused || is_unfinished(name)) remove(folder / name, calls_);
  }
}

void CheckpointWriter::write(const CheckpointContents& contents) {
  const fs::path& folder = folder_.path();
  remove_leftovers();
  tensor_files_.erase(contents.step);  // if writing fails, either file may be the one that the manifest names

  const std::string tensor_file = free_name(contents.step, list_folder(folder, calls_));
  const TensorFileSums sums = write_tensor_file(folder / tensor_file, {.tensors = contents.tensors}, calls_);
  WholeFile file(folder / manifest_name(contents.step), calls_);
  file.write(
      manifest_text({.step = contents.step, .tensor_file = tensor_file, .sums = sums, .document = contents.document}));
  file.commit();

  known_[contents.step] = Condition::good;
  tensor_files_[contents.step] = tensor_file;
  delete_old(contents.step);
  remove_leftovers();
}

void CheckpointWriter::delete_old(std::uint64_t written) {
  const std::vector<std::uint64_t> steps = folder_.steps();
  if (steps.size() <= options_.keep) return;
  std::size_t newer = 0;  // undamaged ones
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (newer >= options_.keep && *step != written) {
      remove(folder_.path() / manifest_name(*step), calls_);
      known_.erase(*step);
      tensor_files_.erase(*step);
    } else if (condition(*step) == Condition::good) {
      ++newer;
    }
  }
}

CheckpointWriter::Condition CheckpointWriter::condition(std::uint64_t step) {
  const auto [known, fresh] = known_.try_emplace(step, Condition::damaged);
  if (!fresh) return known->second;
  try {
    folder_.load(step);
    known->second = Condition::good;
  } catch (const FileError&) {
  }
  return known->second;
}

}  // namespace windrow
