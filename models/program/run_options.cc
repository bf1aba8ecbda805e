#include "run_options.h"

#include <CLI/CLI.hpp>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "windrow/models/workload.h"
#include "windrow/training/file_calls.h"
#include "windrow/training/file_error.h"
#include "windrow/training/record.h"
#include "windrow/training/whole_file.h"

namespace windrow::program {
namespace {

const RecordFormat options_format{.name = "windrow options", .newest_version = 1};

std::filesystem::path options_file(const std::string& folder) { return std::filesystem::path(folder) / "options.json"; }

/// Flags that concern one call. How a training is printed and measured is no option of its run: --json and --compare
/// take no value that would undo them.
bool is_of_one_call(const std::string& flag) {
  static const std::set<std::string> flags = {"--help", "--save", "--resume", "--init-from", "--json", "--compare"};
  return flags.contains(flag);
}

bool names_path(const CLI::Option& option) {
  const std::string value = option.get_type_name().substr(0, option.get_type_name().find(':'));
  return value == "DIR" || value == "FILE" || value == "PATH";
}

/// The files of --train and --valid, which may have been named as files of the data folder.
std::map<std::string, std::string> files_by_flag(const Workload& workload) {
  std::map<std::string, std::string> files;
  for (const auto& [flag, source] :
       {std::pair("--train", &workload.training_source), std::pair("--valid", &workload.validation_source)}) {
    if (source->files.empty()) continue;
    std::filesystem::path file = source->files.front();
    if (workload.kind->translates) {  // which names both files without the language
      if (file.extension() == ".gz") file.replace_extension();
      file.replace_extension();
    }
    files[flag] = file.string();
  }
  return files;
}

}  // namespace

void save_options(const CLI::App& command, const std::string& folder, const Workload& workload) {
  const std::map<std::string, std::string> found = files_by_flag(workload);
  RecordValue::List arguments;
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || is_of_one_call(name)) continue;
    std::string value = option->get_expected_max() == 0 ? "" : option->results().back();
    if (const auto at = found.find(name); at != found.end()) value = at->second;
    if (names_path(*option)) value = std::filesystem::absolute(value).string();
    const std::string flag = value.empty() ? name : name + "=" + value;
    arguments.push_back(option->nonpositional() ? flag : value);
  }
  Record record;
  record.set_format(options_format).set("arguments", arguments);
  WholeFile file(options_file(folder));
  file.write(record.json());
  file.commit();
}

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

}  // namespace windrow::program
