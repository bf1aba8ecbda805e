// Flags that choose a workload, made from the descriptions of the kinds.
#include <algorithm>
#include <functional>
#include <set>
#include <sstream>
#include <utility>

#include "program/options/arguments.h"
#include "program/options/flags.h"
#include "program/output/text.h"

namespace windrow::program {
namespace {

std::string name_of(const std::string& cell) { return cell; }
std::string name_of(const auto& named) { return named.name; }

/// Calls add(one) for the sizes, switches or cells of all kinds, the first one of each name.
template <class One, class Add>
void each_once(std::vector<One> WorkloadKind::*list, Add add) {
  std::set<std::string> seen;
  for (const WorkloadKind& kind : workload_kinds()) {
    for (const One& one : kind.*list) {
      if (seen.insert(name_of(one)).second) add(one);
    }
  }
}

std::vector<std::string> names_of_kinds(const std::function<bool(const WorkloadKind&)>& holds) {
  std::vector<std::string> names;
  for (const WorkloadKind& kind : workload_kinds()) {
    if (holds(kind)) names.push_back(kind.name);
  }
  return names;
}

/// Names a file of a set. Files that are named by their paths need no --data.
CLI::Option* set_flag(CLI::App& command, const char* name, WorkloadOptions& to, std::string WorkloadOptions::*file,
                      const std::string& about) {
  const auto set = [&to, file](const std::string& text) {
    to.*file = text;
    if (to.data.empty()) to.data = ".";
  };
  const std::string expected = "the name of a file in the folder of --data, or its path";
  const auto check =
      accept("FILE", expected, "; expected " + expected, [](const std::string& text) { return !text.empty(); });
  return flag<std::string>(command, name, set, about, check)->default_str("by its name");
}

Check language() {
  const std::string expected = "the end of a file's name, such as de";
  return accept("LANGUAGE", expected, "; expected " + expected,
                [](const std::string& text) { return !text.empty() && text.find_first_of("./") == std::string::npos; });
}

/// "train.txt (or ptb.train.txt), valid.txt (or ptb.valid.txt)".
std::string files_text(const WorkloadKind& kind) {
  if (kind.files.empty()) return "no files, only generated data";
  std::string text;
  for (std::size_t i = 0; i < kind.files.size(); ++i) {
    text += (i == 0 ? "" : ", ") + kind.files[i];
    if (i >= kind.other_names.size() || kind.other_names[i].empty()) continue;
    text += " (or " + joined(kind.other_names[i]) + ")";
  }
  return text;
}

/// A few lines for each kind.
std::string all_about() {
  std::ostringstream text;
  text << "Models, their data files, and the defaults of options that are marked 'see below':\n";
  for (const WorkloadKind& kind : workload_kinds()) {
    std::ostringstream options;
    for (const WorkloadSize& size : kind.sizes) options << " --" << size.name << " " << size.preset;
    for (const std::string& cell : kind.cells) options << (cell == kind.cells.front() ? " --cell " : " or ") << cell;
    for (const WorkloadSwitch& one : kind.switches) options << " [--" << one.name << "]";
    options << " --samples " << kind.samples << "; learning rate " << kind.learning_rate;
    text << "  " << kind.name << ": " << kind.about << "\n"
         << wrapped("      " + files_text(kind) + ";" + options.str(), 110, 6) << "\n";
  }
  text
      << "The training set is the first listed file, and the validation set the second one; other files are read only\n"
         "if --train or --valid names them. If a model has a single file, every tenth sample is for validation.\n"
         "Files may be compressed by gzip, with the ending .gz.\n"
         "Generated data have one validation sample for eight training samples.";
  return text.str();
}

}  // namespace

std::vector<std::string> workload_names() {
  return names_of_kinds([](const WorkloadKind&) { return true; });
}
std::vector<std::string> batched_workload_names() { return names_of_kinds(std::not_fn(&WorkloadKind::has_graph_mode)); }
std::vector<std::string> graph_workload_names() { return names_of_kinds(&WorkloadKind::graphs_known); }
std::string for_models(bool WorkloadKind::*holds) { return "for " + joined(names_of_kinds(holds)); }

void add_size_flag(CLI::App& command, const std::string& name, WorkloadOptions& to) {
  constexpr Index most = 65536;  // larger values are typing errors
  for (const WorkloadKind& kind : workload_kinds()) {
    for (const WorkloadSize& size : kind.sizes) {
      if (size.name != name) continue;
      const auto set = [&to, name](const Index& value) { to.sizes[name] = value; };
      flag<Index>(command, "--" + name, set, size.about, whole_number(1, std::min(size.most, most)))
          ->default_str("see below");
      return;
    }
  }
  throw MisuseError("no model has a size '" + name + "'; expected the name of a model's size");
}

void add_workload_flags(CLI::App& command, WorkloadOptions& to) {
  flag(command, "--data", to.data, "Folder with the model's data files", folder())->default_str("generated data");
  set_flag(command, "--train", to, &WorkloadOptions::training_file,
           "File of the training set; for seq2seq, its name without the language");
  set_flag(command, "--valid", to, &WorkloadOptions::validation_file, "File of the validation set; likewise");
  each_once(&WorkloadKind::sizes, [&](const WorkloadSize& size) { add_size_flag(command, size.name, to); });
  each_once(&WorkloadKind::switches, [&](const WorkloadSwitch& one) {
    const auto set = [&to, name = one.name] { to.switches.insert(name); };
    command.add_flag_callback("--" + one.name, set, one.about)->disable_flag_override();
  });
  std::vector<std::string> cells;
  each_once(&WorkloadKind::cells, [&](const std::string& cell) { cells.push_back(cell); });
  flag(command, "--cell", to.cell, "Cell, for models that offer several", one_of(cells))
      ->default_str("the first listed below");
  flag(command, "--source", to.source_language,
       "Language to translate from, as the files' names end in it; for seq2seq", language())
      ->default_str("the first by alphabet, or the other one than --target");
  flag(command, "--target", to.target_language, "Language to translate to; needed, with --source, if there are several",
       language())
      ->default_str("the other one");
  flag<std::string>(
      command, "--graph", [&to](const std::string& mode) { to.graph_mode = mode == "on"; },
      "Graph mode, for mlp and cnn: records a minibatch once, and replays it", one_of({"on", "off"}))
      ->default_str("on");
  flag(command, "--samples", to.samples, "Training samples to generate (without --data)", whole_number(1, 1 << 24))
      ->default_str("see below");
  flag(command, "--seed", to.seed, "Seed of initial parameters, sample order and generated data",
       whole_number(0, UINT32_MAX));
  command.footer(all_about());
}

std::string running_policies_text() {
  return "Running policies (--policy):\n"
         "  pool        a pool of worker threads runs all ops\n"
         "  per_device  each device has its own threads\n"
         "  serial      each op runs inside its push, for debugging\n"
         "  chaos       ready ops run in random order, to find missing dependencies\n";
}

std::string schedule_policies_text() {
  return "Schedule policies; a batch is:\n"
         "  level       the vertices of one type and level, level by level\n"
         "  depth       the same, with levels recomputed for each minibatch\n"
         "  agenda      all ready vertices of the type with the lowest mean level (DyNet)\n"
         "  complete    all ready vertices of the type that loses least by not waiting for more\n"
         "  serial      one vertex\n";
}

std::string data_text(const WorkloadOptions& options) {
  return options.data.empty() ? "generated data" : "data from " + options.data;
}

std::string of_files(const SampleSource& source, const WorkloadOptions& options) {
  std::string text;
  for (const std::filesystem::path& file : source.files) {
    const bool in_folder = file.parent_path() == std::filesystem::path(options.data);
    text += (text.empty() ? " of " : " and ") + (in_folder ? file.filename() : file).string();
  }
  return text;
}

std::string left_out_text(const Workload& workload) {
  std::string text;
  for (const auto& [set, source] :
       {std::pair("training", &workload.training_source), std::pair("validation", &workload.validation_source)}) {
    std::vector<std::string> reasons;
    for (const auto& [samples, why] : source->left_out) reasons.push_back(grouped(samples) + " " + why);
    if (!reasons.empty()) text += std::string("left out of the ") + set + " set: " + joined(reasons) + "\n";
  }
  return text;
}

}  // namespace windrow::program
