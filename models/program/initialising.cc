#include "initialising.h"

#include <filesystem>

#include "flags.h"
#include "program.h"
#include "saved_model.h"
#include "windrow/comm/communicator.h"
#include "windrow/models/fine_tuning.h"
#include "windrow/training/file_error.h"

namespace windrow::program {
namespace {

SavedCheckpoint checkpoint_at(const std::filesystem::path& from) {
  if (std::filesystem::is_directory(from)) return newest_checkpoint(from.string());
  constexpr std::size_t digits = 12;  // see checkpoint_folder.h
  const std::string step = from.stem().string();
  if (step.size() != digits || step.find_first_not_of("0123456789") != std::string::npos) {
    throw FileError(
        from.string() +
        ": not a file of a checkpoint; expected one, such as 000000000300.json, or a folder of checkpoints");
  }
  return CheckpointFolder(from.has_parent_path() ? from.parent_path() : ".").load(std::stoull(step));
}

/// What must be equal besides the shapes of parameters.
Record architecture_of(const WorkloadOptions& options, const std::string& name) {
  Record record;
  record.set("name", name);
  if (!options.cell.empty()) record.set("cell", options.cell);
  RecordValue::List switches(options.switches.begin(), options.switches.end());
  if (!switches.empty()) record.set("switches", std::move(switches));
  return record;
}

Record sizes_of(const WorkloadOptions& options) {
  Record record;
  for (const auto& [name, size] : options.sizes) record.set(name, size);
  return record;
}

}  // namespace

void add_init_flag(CLI::App& command, std::string& to) {
  flag(command, "--init-from", to,
       "Begins with the weights of this folder of checkpoints, or of the checkpoint with this file, which are found by "
       "word and label; after --vectors",
       folder_or_file())
      ->default_str("")
      ->excludes(command.get_option("--resume"));
}

std::int64_t initialise(Workload& workload, const std::string& from, const Device& host) {
  const SavedCheckpoint checkpoint = checkpoint_at(from);
  const std::string place = checkpoint.tensors.path().string();
  const SavedModel model = model_alone(checkpoint);
  require_same_model(architecture_of(model.options, model.name), architecture_of(workload.options, workload.kind->name),
                     place);
  const Workload trained = load_model(host, checkpoint, model);
  TakenWeights taken;
  try {
    taken = take_weights(workload, trained);
  } catch (const MisuseError& error) {
    const std::string sizes = changed_flags(sizes_of(model.options), sizes_of(workload.options));
    throw FileError(place + ": " + error.what() + (sizes.empty() ? "" : ", with " + sizes));
  }
  std::string names;
  for (const TakenWeights::Names& one : taken.names) {
    names += (names.empty() ? "; " : ", ") + grouped(one.found) + " of " + grouped(one.of) + " " + one.what;
  }
  print("initialised from %s: %s parameters%s\n", place.c_str(), grouped(taken.parameters).c_str(), names.c_str());
  return fingerprint(std::to_string(checkpoint.step) + ' ' + checkpoint.document.json());
}

}  // namespace windrow::program
