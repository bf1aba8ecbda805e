// Flags that choose a workload, made from the descriptions of the kinds.
#include <algorithm>
#include <sstream>

#include "flags.h"
#include "help.h"
#include "program.h"

namespace windrow::program {
namespace {

/// Each word once, in the order of first occurrence.
void add_once(std::vector<std::string>& words, const std::string& word) {
  if (std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
}

std::vector<std::string> all_cells() {
  std::vector<std::string> cells;
  for (const WorkloadKind& kind : workload_kinds()) {
    for (const std::string& cell : kind.cells) add_once(cells, cell);
  }
  return cells;
}

void add_sizes(CLI::App& command, WorkloadOptions& to) {
  std::vector<std::string> seen;
  for (const WorkloadKind& kind : workload_kinds()) {
    for (const WorkloadSize& size : kind.sizes) {
      const std::size_t before = seen.size();
      add_once(seen, size.name);
      if (seen.size() == before) continue;
      add_size_flag(command, size.name, to);
    }
  }
}

void add_switches(CLI::App& command, WorkloadOptions& to) {
  std::vector<std::string> seen;
  for (const WorkloadKind& kind : workload_kinds()) {
    for (const WorkloadSwitch& one : kind.switches) {
      const std::size_t before = seen.size();
      add_once(seen, one.name);
      if (seen.size() == before) continue;
      command
          .add_flag_callback(
              "--" + one.name, [&to, name = one.name] { to.switches.insert(name); }, one.about)
          ->disable_flag_override();
    }
  }
}

Check name_of_file() {
  const std::string expected = "the name of a file in the folder of --data, or its path";
  return {"FILE", expected,
          [=](std::string& text) -> std::string { return text.empty() ? "''; expected " + expected : ""; }};
}

/// Names a file of a set. Files that are named by their paths need no --data.
CLI::Option* set_flag(CLI::App& command, const char* name, WorkloadOptions& to, std::string WorkloadOptions::*file,
                      const std::string& about) {
  const auto set = [&to, file](const std::string& text) {
    to.*file = text;
    if (to.data.empty()) to.data = ".";
  };
  return flag<std::string>(command, name, set, about, name_of_file())->default_str("by its name");
}

Check language() {
  const std::string expected = "the end of a file's name, such as de";
  return {"LANGUAGE", expected, [=](std::string& text) -> std::string {
            const bool fits = !text.empty() && text.find_first_of("./") == std::string::npos;
            return fits ? "" : "'" + text + "'; expected " + expected;
          }};
}

/// "train.txt (or ptb.train.txt), valid.txt (or ptb.valid.txt)".
std::string files_text(const WorkloadKind& kind) {
  if (kind.files.empty()) return "no files, only generated data";
  std::string text;
  for (std::size_t i = 0; i < kind.files.size(); ++i) {
    text += (i == 0 ? "" : ", ") + kind.files[i];
    if (i >= kind.other_names.size() || kind.other_names[i].empty()) continue;
    text += " (";
    for (const std::string& other : kind.other_names[i]) text += (text.ends_with('(') ? "or " : ", ") + other;
    text += ")";
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
  std::vector<std::string> names;
  for (const WorkloadKind& kind : workload_kinds()) names.push_back(kind.name);
  return names;
}

std::vector<std::string> batched_workload_names() {
  std::vector<std::string> names;
  for (const WorkloadKind& kind : workload_kinds()) {
    if (!kind.has_graph_mode) names.push_back(kind.name);
  }
  return names;
}

std::vector<std::string> graph_workload_names() {
  std::vector<std::string> names;
  for (const WorkloadKind& kind : workload_kinds()) {
    if (kind.graphs_known) names.push_back(kind.name);
  }
  return names;
}

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
  add_sizes(command, to);
  add_switches(command, to);
  flag<std::string>(
      command, "--cell", [&to](const std::string& cell) { to.cell = cell; }, "Cell, for models that offer several",
      one_of(all_cells()))
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
  flag<std::size_t>(
      command, "--samples", [&to](const std::size_t& samples) { to.samples = samples; },
      "Training samples to generate (without --data)", whole_number(1, 1 << 24))
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
  const auto add = [&](const char* set, const SampleSource& source) {
    std::string reasons;
    for (const auto& [samples, why] : source.left_out) {
      reasons += (reasons.empty() ? "" : ", ") + grouped(samples) + " " + why;
    }
    if (!reasons.empty()) text += std::string("left out of the ") + set + " set: " + reasons + "\n";
  };
  add("training", workload.training_source);
  add("validation", workload.validation_source);
  return text;
}

}  // namespace windrow::program
