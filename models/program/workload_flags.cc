// Flags that choose a workload, made from what the kinds say of themselves.
#include <algorithm>

#include "flags.h"

namespace windrow::program {
namespace {

/// Each word once, in the order in which they first come.
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

/// Two lines for each.
std::string all_about() {
  std::string text = "Models, the files that --data FOLDER has for each, and its sizes if none are given:\n";
  for (const WorkloadKind& kind : workload_kinds()) {
    text += "  " + kind.name + ": " + kind.about + "\n     ";
    for (const std::string& file : kind.files) text += " " + file;
    text += kind.files.empty() ? " generated;" : ";";
    for (const WorkloadSize& size : kind.sizes) text += " --" + size.name + " " + std::to_string(size.preset);
    text += " --samples " + std::to_string(kind.samples);
    for (const std::string& cell : kind.cells) text += (cell == kind.cells.front() ? " --cell " : " or ") + cell;
    text += "\n";
  }
  return text + "The first of the files that is there is learned from, and the one behind it asked about.";
}

}  // namespace

std::vector<std::string> workload_names() {
  std::vector<std::string> names;
  for (const WorkloadKind& kind : workload_kinds()) names.push_back(kind.name);
  return names;
}

void add_size_flag(CLI::App& command, const std::string& name, WorkloadOptions& to) {
  constexpr Index most = 65536;  // of a flag; beyond it lie typing errors
  for (const WorkloadKind& kind : workload_kinds()) {
    for (const WorkloadSize& size : kind.sizes) {
      if (size.name != name) continue;
      const auto set = [&to, name](const Index& value) { to.sizes[name] = value; };
      flag<Index>(command, "--" + name, set, size.about, whole_number(1, std::min(size.most, most)));
      return;
    }
  }
  throw MisuseError("no model has a size '" + name + "'; expected one of a model's");
}

void add_workload_flags(CLI::App& command, WorkloadOptions& to) {
  flag(command, "--data", to.data, "Has the model's files; else generated", folder());
  add_sizes(command, to);
  flag<std::string>(
      command, "--cell", [&to](const std::string& cell) { to.cell = cell; }, "Which of the model's",
      one_of(all_cells()));
  flag<std::size_t>(
      command, "--samples", [&to](const std::size_t& samples) { to.samples = samples; }, "Generated to learn from",
      whole_number(1, 1 << 24));
  flag(command, "--seed", to.seed, "Of initial values, orders and generated data", whole_number(0, UINT32_MAX));
  command.footer(all_about());
}

}  // namespace windrow::program
