#include "windrow/training/checkpoint_folder.h"

#include <algorithm>
#include <utility>

#include "files/checkpoint_names.h"
#include "files/manifest.h"
#include "files/messages.h"
#include "files/open_file.h"
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

}  // namespace windrow
