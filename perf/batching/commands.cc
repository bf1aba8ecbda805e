#include "batching/commands.h"

#include <algorithm>
#include <memory>

#include "batching/tables.h"
#include "flags.h"
#include "program.h"

namespace windrow::perf {
namespace {

/// A command and its defaults, with which it takes a few minutes on two cores.
struct Command {
  const char *name, *about;
  Table (*measure)(const TableOptions& options);
  /// What else it can measure, if this flag is given.
  const char *flag = nullptr, *flag_about = nullptr;
  Table (*measure_other)(const TableOptions& options) = nullptr;
  enum class Takes { models, trees, layers } takes;
  std::string batch, hidden = {}, workers = {};  ///< as flags have them
  std::size_t samples = 0;
};

const Command commands[] = {
    {.name = "ablation",
     .about = "Throughput with each optimisation disabled (Cavs, figure 10)",
     .measure = ablation,
     .flag = "--times",
     .flag_about = "Measure the time of memory operations and of computation instead (Cavs, table 2)",
     .measure_other = step_times,
     .takes = Command::Takes::models,
     .batch = "32",
     .samples = 96},
    {.name = "schedules",
     .about = "Throughput without batching and with each schedule policy (DyNet, table 1; Cavs, section 5.1)",
     .measure = schedules,
     .flag = "--manual",
     .flag_about = "Compare automatic with manual batching of a tagger instead (DyNet, figure 2)",
     .measure_other = manual_batching,
     .takes = Command::Takes::models,
     .batch = "32",
     .samples = 96},
    {.name = "lazy",
     .about = "A Tree-LSTM as lazy expressions compared with its vertex function, by hidden size",
     .measure = lazy_expressions,
     .takes = Command::Takes::trees,
     .batch = "64",
     .hidden = "64,128,256",
     .workers = "1,2",
     .samples = 512},
    {.name = "static",
     .about = "Steps of operators that are pushed, and replayed: time, allocations, and peak memory",
     .measure = static_steps,
     .takes = Command::Takes::layers,
     .batch = "32",
     .hidden = "128",
     .workers = "2"}};

/// The sizes that models have in tables, and those of the tagger.
const std::map<std::string, Index> narrow = {{"hidden", 128}, {"embedding", 128}, {"vocabulary", 2000}};
const std::map<std::string, Index> of_tagger = {{"hidden", 256}, {"embedding", 200}, {"layers", 2}};

/// The arguments of one command.
struct TableArguments {
  std::string models = "all", batch, hidden, workers;
  bool other = false, json = false;
  TableOptions table;
};

std::vector<std::string> models_of(const Command& command, const TableArguments& arguments) {
  const bool timed = arguments.other && command.measure_other == step_times;
  std::vector<std::string> models =
      chosen(arguments.models, timed ? program::graph_workload_names() : program::batched_workload_names());
  require_one_model(models, arguments.table.workload);
  for (const std::string& model : models) {
    if (!timed || workload_kind(model).graphs_known) continue;
    throw MisuseError(model + ": --times measures steps of a runner; expected a model whose graphs are known before");
  }
  return models;
}

void run(const Command& command, TableArguments arguments) {
  TableOptions& table = arguments.table;
  table.batches = program::numbers_of(arguments.batch);
  table.workers = program::numbers_of(arguments.workers);
  if (command.takes == Command::Takes::models) {
    const bool tagger = arguments.other && command.measure_other == manual_batching;
    if (!tagger) table.models = models_of(command, arguments);
    for (const std::string& model : table.models) check_workload(model, table.workload);
    for (const auto& [name, value] : tagger ? of_tagger : narrow) table.workload.sizes.emplace(name, value);
    const int largest = *std::max_element(table.batches.begin(), table.batches.end());
    table.workload.samples = std::max(table.workload.samples, static_cast<std::size_t>(largest));
  } else {
    table.hidden = program::numbers_of(arguments.hidden);
  }
  const Table result = (arguments.other ? command.measure_other : command.measure)(table);
  program::print_text(arguments.json ? result.json() : result.markdown());
}

/// The flags for models. The sizes of tables stand in --help in place of the models'.
void add_models(CLI::App& table, const Command& command, TableArguments& to) {
  using namespace program;
  flag(table, "--model", to.models, "Models to train", some_of(with_all(batched_workload_names())));
  add_workload_flags(table, to.table.workload);
  for (const auto& [size, value] : narrow) table.get_option("--" + size)->default_str(std::to_string(value));
  table.get_option("--samples")
      ->description("Training samples per measurement")
      ->default_str(std::to_string(command.samples));
  toggle(table, command.flag, to.other, command.flag_about);
  if (command.measure == ablation) table.footer(table.get_footer() + "\n\n" + optimisations_text());
}

void add_table(CLI::App& app, const Command& command) {
  using namespace program;
  using Takes = Command::Takes;
  CLI::App& table = *app.add_subcommand(command.name, command.about);
  const auto arguments = std::make_shared<TableArguments>();
  TableArguments& to = *arguments;
  WorkloadOptions& workload = to.table.workload;
  to.batch = command.batch;
  to.hidden = command.hidden;
  to.workers = command.workers.empty() ? std::to_string(default_workers()) : command.workers;
  workload.samples = command.samples;
  const bool models = command.takes == Takes::models, trees = command.takes == Takes::trees;
  if (models) {
    add_models(table, command, to);
  } else {
    flag(table, "--hidden", to.hidden, trees ? "Hidden sizes, also used as embedding sizes" : "Width of the layers",
         trees ? whole_numbers(1, 1 << 16) : whole_number(1, 1 << 15));
    flag(table, "--seed", workload.seed, "Seed of initial parameters and generated data", whole_number(0, UINT32_MAX));
  }
  if (trees) {
    flag(table, "--data", workload.data, "Folder with a treebank: train.txt", folder())->default_str("generated data");
    flag(table, "--samples", workload.samples, "Samples per measurement", whole_number(1, 1 << 24));
  } else {
    flag(table, "--turn-ms", to.table.turn_ms, "Shortest duration of a measurement in ms", whole_number(1, 1 << 20));
  }
  flag(table, "--batch", to.batch, "Samples per minibatch",
       models ? whole_numbers(1, 1 << 20) : whole_number(1, 1 << 20));
  flag(table, "--workers", to.workers, models ? "Worker threads" : "Numbers of worker threads to compare",
       models ? whole_number(1, 1024) : whole_numbers(1, 1024));
  flag(table, "--repetitions", to.table.repetitions, "Measurements of each variant", whole_number(1, 1 << 20));
  toggle(table, "--json", to.json, "Print one JSON object per row");
  computes(table, [&command, arguments] { run(command, *arguments); });
}

}  // namespace

std::vector<std::string> with_all(std::vector<std::string> names) {
  names.push_back("all");
  return names;
}

std::vector<std::string> chosen(const std::string& text, std::vector<std::string> all) {
  std::vector<std::string> words = program::words_of(text);
  return std::find(words.begin(), words.end(), "all") == words.end() ? words : all;
}

void require_one_model(const std::vector<std::string>& models, const WorkloadOptions& workload) {
  if (models.size() <= 1 || workload.data.empty()) return;
  throw MisuseError("--data with several models; expected one model, because each has its own files");
}

void add_tables(CLI::App& app) {
  for (const Command& command : commands) add_table(app, command);
}

}  // namespace windrow::perf
