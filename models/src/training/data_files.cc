// Which files of a folder are the training set and the validation set.
#include <algorithm>

#include "data/open_data.h"
#include "training/splits.h"
#include "windrow/models/internal/parallel_text.h"

namespace windrow {
namespace {

/// One of the two sets.
struct DataSet {
  std::string about;   // "training set"
  std::string flag;    // of windrow train
  std::string chosen;  // by the options; empty if they leave it open
  std::vector<std::string> names;
};

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
  }
  return text;
}

/// A chosen file is a name in the folder, or a path, as shells complete it.
std::filesystem::path chosen_file(const std::filesystem::path& folder, const std::string& name) {
  const std::filesystem::path in_folder = file_or_compressed(folder / name), path = file_or_compressed(name);
  if (!in_folder.empty()) return in_folder;
  return path.empty() ? folder / name : path;  // reading a missing file throws
}

std::filesystem::path file_of(const std::filesystem::path& folder, const DataSet& part) {
  if (!part.chosen.empty()) return chosen_file(folder, part.chosen);
  for (const std::string& name : part.names) {
    const std::vector<std::filesystem::path> found = files_named(folder, name);
    if (found.size() == 1) return found.front();
    if (found.empty()) continue;
    throw DataError(folder.string() + ": " + found[0].filename().string() + " and " + found[1].filename().string() +
                    "; expected one " + part.about + ", or the name of one by " + part.flag);
  }
  throw DataError(folder.string() + ": no " + listed(part.names) + "; expected the " + part.about +
                  " under such a name, or another file by " + part.flag);
}

DataSet data_set_of(const WorkloadKind& kind, const WorkloadOptions& options, std::size_t number) {
  const bool trains = number == 0;
  DataSet part{.about = trains ? "training set" : "validation set",
               .flag = trains ? "--train" : "--valid",
               .chosen = trains ? options.training_file : options.validation_file,
               .names = {}};
  if (number < kind.files.size()) part.names.push_back(kind.files[number]);
  if (number < kind.other_names.size()) {
    part.names.insert(part.names.end(), kind.other_names[number].begin(), kind.other_names[number].end());
  }
  return part;
}

void refuse_one_file(const DataFiles& files) {
  std::error_code ignored;
  if (files.validation.empty() || !std::filesystem::equivalent(files.training, files.validation, ignored)) return;
  throw DataError(files.training.string() +
                  ": the training set and the validation set; expected two files, by --train " + "and --valid");
}

}  // namespace

DataFiles files_of(const WorkloadKind& kind, const WorkloadOptions& options) {
  const std::filesystem::path folder = options.data;
  const bool divided = kind.files.size() == 1 && options.validation_file.empty();
  DataFiles files;
  if (!options.validation_only || divided) files.training = file_of(folder, data_set_of(kind, options, 0));
  if (!divided) files.validation = file_of(folder, data_set_of(kind, options, 1));
  if (!options.validation_only) refuse_one_file(files);
  return files;
}

std::filesystem::path labels_of(const std::filesystem::path& images) {
  std::string name = uncompressed_name(images).filename().string();
  for (const auto& [from, to] : {std::pair<std::string, std::string>("images", "labels"), {"idx3", "idx1"}}) {
    const std::size_t at = name.rfind(from);
    if (at == std::string::npos) {
      throw DataError(images.string() + ": a name without '" + from +
                      "', so its labels are not found; expected one such as train-images-idx3-ubyte");
    }
    name.replace(at, from.size(), to);
  }
  const std::filesystem::path labels = images.parent_path() / name, there = file_or_compressed(labels);
  return there.empty() ? labels : there;
}

std::string training_part(const WorkloadOptions& options) {
  return options.training_file.empty() ? "train" : options.training_file;
}

std::string validation_part(const WorkloadOptions& options) {
  if (!options.validation_file.empty()) return options.validation_file;
  for (const char* const name : {"valid", "val", "dev"}) {
    if (!files_named(options.data, std::string(name) + ".*").empty()) return name;
  }
  return "valid";
}

}  // namespace windrow
