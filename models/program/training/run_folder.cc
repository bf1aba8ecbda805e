#include "program/training/run_folder.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

#include "program/commands/commands.h"
#include "program/options/arguments.h"
#include "program/options/flags.h"
#include "program/output/program.h"
#include "program/training/saving.h"
#include "windrow/comm/communicator.h"
#include "windrow/models/saved_model.h"
#include "windrow/training/internal/file_calls.h"
#include "windrow/training/internal/whole_file.h"
#include "windrow/training/tensor_file.h"

namespace windrow::program {
namespace {

// --- Options

const RecordFormat options_format{.name = "windrow options", .newest_version = 1};

std::filesystem::path options_file(const std::string& folder) { return std::filesystem::path(folder) / "options.json"; }
std::filesystem::path epochs_file(const std::string& folder) { return std::filesystem::path(folder) / "epochs.jsonl"; }

/// Flags that concern one call. Flags of output and measurement are not saved: --json and --compare take no value, so a
/// later call could not undo them.
bool is_of_one_call(const std::string& flag) {
  static const std::set<std::string> flags = {"--help", "--save", "--resume", "--init-from", "--json", "--compare"};
  return flags.contains(flag);
}

void write_file(const std::filesystem::path& path, const std::string& text) {
  WholeFile file(path);
  file.write(text);
  file.commit();
}

/// The files of --train and --valid, which may have been named as files of the data folder.
std::map<std::string, std::string> files_by_flag(const Workload& workload) {
  std::map<std::string, std::string> files;
  for (const auto& [flag, source] :
       {std::pair("--train", &workload.training_source), std::pair("--valid", &workload.validation_source)}) {
    if (source->files.empty()) continue;
    std::filesystem::path file = source->files.front();
    if (workload.kind->translates) {  // then one name, without the language, stands for both files
      if (file.extension() == ".gz") file.replace_extension();
      file.replace_extension();
    }
    files[flag] = file.string();
  }
  return files;
}

/// The arguments of `windrow train` that continue the training in the folder: those that save_options() has written,
/// then `more`, which override them. Throws FileError if the folder has none.
std::vector<std::string> resuming_arguments(const std::string& folder, const std::vector<std::string>& more) {
  const std::filesystem::path file = options_file(folder);
  if (!std::filesystem::exists(file)) {
    throw FileError(folder +
                    ": has no options.json; expected the folder of a windrow train --save, or else windrow train "
                    "with its options and --resume");
  }
  constexpr std::size_t most = 1 << 20;
  const Record record = Record::parse(read_whole_file(file, most), file.string());
  record.require_format(options_format);
  std::vector<std::string> arguments = {"train"};
  for (const RecordValue& one : record.at("arguments").list()) {
    if (!is_of_one_call(one.text())) arguments.push_back(one.text());  // earlier versions kept --json
  }
  arguments.insert(arguments.end(), more.begin(), more.end());
  arguments.insert(arguments.end(), {"--save=" + folder, "--resume"});
  return arguments;
}

// --- Weights of another run

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

/// The options that must be equal besides the shapes of parameters.
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

void save_options(const CLI::App& command, const std::string& folder, const Workload& workload) {
  const std::map<std::string, std::string> found = files_by_flag(workload);
  RecordValue::List arguments;
  for (const CLI::Option* option : command.get_options()) {
    const FlagFacts flag = facts_of(*option);
    if (option->count() == 0 || is_of_one_call(flag.name)) continue;
    std::string value = flag.value.empty() ? "" : option->results().back();
    if (const auto at = found.find(flag.name); at != found.end()) value = at->second;
    if (flag.value == "DIR" || flag.value == "FILE" || flag.value == "PATH") {
      value = std::filesystem::absolute(value).string();
    }
    arguments.push_back(flag.positional ? value : value.empty() ? flag.name : flag.name + "=" + value);
  }
  Record record;
  record.set_format(options_format).set("arguments", arguments);
  write_file(options_file(folder), record.json());
}

void add_resume(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "resume",
      "Continues a training from its newest checkpoint, with the options that it had; flags of windrow train "
      "after the folder overrule these.");
  const auto run = std::make_shared<std::string>();
  flag(command, "run", *run, "Folder of checkpoints, which windrow train --save has written", folder())->required();
  command.allow_extras();
  command.callback([&app, &command, run] {
    std::vector<std::string> arguments = resuming_arguments(*run, command.remaining());
    std::reverse(arguments.begin(), arguments.end());  // CLI11 wants them in reverse
    app.parse(arguments);
  });
}

Record metrics_record(const std::vector<Metric>& metrics) {
  Record record;
  for (const Metric& metric : metrics) record.set(metric.name, metric.value);
  return record;
}

Record epoch_record(const Trainer& trainer, const Trainer::Pass& pass, const std::vector<Metric>& score,
                    const Workload& workload) {
  Record record;
  record.set("epoch", trainer.epochs()).set("minibatches", trainer.minibatches()).set("training_loss", pass.loss);
  record.set("seconds", pass.seconds).set(workload.kind->unit + "_per_second", pass.units_per_second());
  if (workload.validation.empty()) return record;
  if (trainer.validation_loss()) record.set("validation_loss", *trainer.validation_loss());
  return record.set("validation", metrics_record(score));
}

std::vector<Record> keep_epochs(const std::string& folder, std::uint64_t last) {
  const std::filesystem::path file = epochs_file(folder);
  constexpr std::size_t most = std::size_t{1} << 30;
  std::vector<Record> epochs;
  std::string kept;
  if (std::filesystem::exists(file)) {
    std::istringstream text(read_whole_file(file, most));
    for (std::string line; std::getline(text, line);) {
      try {
        Record epoch = Record::parse(line, file.string());
        if (epoch.at("epoch").count() > last) continue;
        epochs.push_back(std::move(epoch));
        kept += line + "\n";
      } catch (const FileError&) {  // for example an incomplete line of a program that was killed
      }
    }
  }
  write_file(file, kept);
  return epochs;
}

void add_epoch(const std::string& folder, const Record& epoch) {
  const std::filesystem::path file = epochs_file(folder);
  std::ofstream out(file, std::ios::app | std::ios::binary);
  out << epoch.json(JsonStyle::compact) << '\n' << std::flush;
  if (!out) {
    throw FileError(file.string() + ": cannot be written: " + std::generic_category().message(errno) +
                    "; expected a file to which epochs can be added");
  }
}

void add_init_flag(CLI::App& command, std::string& to) {
  flag(command, "--init-from", to,
       "Folder of checkpoints, or file of one, whose weights training starts from; rows of words and labels are "
       "matched by word and label; applied after --vectors",
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
  std::vector<std::string> names;
  for (const auto& [what, found, of] : taken.names) names.push_back(grouped(found) + " of " + grouped(of) + " " + what);
  print("initialised from %s: %s parameters%s%s\n", place.c_str(), grouped(taken.parameters).c_str(),
        names.empty() ? "" : "; ", joined(names).c_str());
  return fingerprint(std::to_string(checkpoint.step) + ' ' + checkpoint.document.json());
}

}  // namespace windrow::program
