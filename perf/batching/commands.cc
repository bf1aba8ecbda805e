#include "batching/commands.h"

#include <algorithm>
#include <memory>

#include "batching/tables.h"
#include "flags.h"

namespace windrow::perf {
namespace {

/// A command and its defaults, with which it takes about two minutes on two cores.
struct Command {
  const char *name, *about;
  Result (*measure)(const TableOptions& options);
  enum class Takes { one_model, several_models, graph_models, trees, sentences, widths, layers, parameters } takes;
  std::string models = {}, batches;  ///< as flags have them
  bool several_batches = true;
  std::size_t samples = 0;
  std::map<std::string, Index> sizes = {};
  std::string width = "2048";  ///< of layers and parameters
  std::string workers = "1,2,8";
};

const std::vector<Command>& commands() {
  using Takes = Command::Takes;
  const std::map<std::string, Index> narrow = {{"hidden", 128}, {"embedding", 128}, {"vocabulary", 2000}};
  static const std::vector<Command> all = {
      {.name = "serial",
       .about = "Speedup of batching over one vertex at a time, by batch size (Cavs, section 5.1)",
       .measure = batched_against_serial,
       .takes = Takes::one_model,
       .models = "fixed-lstm",
       .batches = "1,2,4,8,16,32,64,128"},
      {.name = "overhead",
       .about = "Share of time spent building graphs and scheduling them, by size (Cavs, figure 9)",
       .measure = overhead,
       .takes = Takes::trees,
       .batches = "1,4,16,64,256",
       .sizes = {{"hidden", 256}, {"embedding", 256}}},
      {.name = "ablation",
       .about = "Throughput with each optimisation disabled (Cavs, figure 10)",
       .measure = ablation,
       .takes = Takes::several_models,
       .models = "all",
       .batches = "32",
       .several_batches = false,
       .samples = 96,
       .sizes = narrow},
      {.name = "memory",
       .about = "Time of memory operations and of computation, by batch size (Cavs, table 2)",
       .measure = memory_operations,
       .takes = Takes::graph_models,
       .models = "tree-lstm",
       .batches = "1,16,64,256",
       .samples = 256},
      {.name = "schedules",
       .about = "Throughput without batching and with each schedule policy (DyNet, table 1)",
       .measure = schedules,
       .takes = Takes::several_models,
       .models = "all",
       .batches = "32",
       .several_batches = false,
       .samples = 96,
       .sizes = narrow},
      {.name = "hand",
       .about = "Manual batching compared with automatic batching, by batch size (DyNet, figure 2)",
       .measure = by_hand,
       .takes = Takes::sentences,
       .batches = "1,2,4,8,16,32,64",
       .samples = 64,
       .sizes = {{"hidden", 256}, {"embedding", 200}, {"layers", 2}}},
      {.name = "lazy",
       .about = "A Tree-LSTM as lazy expressions compared with its vertex function, by hidden size",
       .measure = lazy_expressions,
       .takes = Takes::widths,
       .batches = "64",
       .several_batches = false,
       .samples = 512,
       .workers = "1,2"},
      {.name = "mlp",
       .about = "Operators on large tensors, by number of workers",
       .measure = large_tensors,
       .takes = Takes::layers,
       .batches = "256",
       .several_batches = false},
      {.name = "replay",
       .about = "Training steps that are pushed, and replayed, by number of workers",
       .measure = replayed_steps,
       .takes = Takes::layers,
       .batches = "32",
       .several_batches = false,
       .width = "64"},
      {.name = "static",
       .about = "Time and peak memory of steps, by when and where tensors get memory",
       .measure = step_memory,
       .takes = Takes::layers,
       .batches = "32",
       .several_batches = false,
       .width = "128",
       .workers = "2"},
      {.name = "optimisers",
       .about = "Steps of optimisers on large parameters, as a share of the memory bandwidth",
       .measure = optimiser_steps,
       .takes = Takes::parameters,
       .batches = "1",
       .several_batches = false},
  };
  return all;
}

/// The arguments of one command.
struct TableArguments {
  std::string models, batches, leaves = "32,64,128,256,512,1024", hidden = "64,128,256", workers, out = "perf/results";
  TableOptions table;
};

std::vector<std::string> models_of(const Command& command) {
  if (command.takes == Command::Takes::graph_models) return program::graph_workload_names();
  return program::batched_workload_names();
}

void run(const Command& command, TableArguments arguments, const std::string& called) {
  TableOptions& table = arguments.table;
  if (!arguments.models.empty()) table.models = chosen(arguments.models, models_of(command));
  require_one_model(table.models, table.workload);
  table.batches = program::numbers_of(arguments.batches);
  table.leaves = program::numbers_of(arguments.leaves);
  table.hidden = program::numbers_of(arguments.hidden);
  table.worker_counts = program::numbers_of(arguments.workers);
  for (const std::string& model : table.models) check_workload(model, table.workload);
  for (const auto& [name, value] : command.sizes) table.workload.sizes.emplace(name, value);
  const ResultFolder folder(arguments.out, command.name);
  Result result = command.measure(table);
  result.name = command.name;
  result.command = called;
  folder.write(result);
  program::print("%s", result.markdown().c_str());
}

/// The command's own sizes stand in --help in place of the models'.
void show_presets(CLI::App& table, const Command& command) {
  for (const auto& [size, value] : command.sizes) {
    CLI::Option* const option = table.get_option_no_throw("--" + size);
    if (option != nullptr) option->default_str(std::to_string(value));
  }
  CLI::Option* const samples = table.get_option_no_throw("--samples");
  if (samples != nullptr) {
    samples->description("Training samples per measurement");
    if (command.samples > 0) samples->default_str(std::to_string(command.samples));
  }
  if (command.measure == ablation) table.footer(table.get_footer() + "\n\n" + optimisations_text());
}

CLI::App* add_table(CLI::App& app, const Command& command, TableArguments& to) {
  using namespace program;
  using Takes = Command::Takes;
  CLI::App& table = *app.add_subcommand(command.name, command.about);
  table.footer("");  // not the program's
  WorkloadOptions& workload = to.table.workload;
  to.models = command.models;
  to.batches = command.batches;
  to.workers = command.workers;
  workload.samples = command.samples;
  to.table.workers = default_workers();
  if (command.takes == Takes::one_model) {
    flag(table, "--model", to.models, "Model to train", one_of(models_of(command)));
  } else if (command.takes == Takes::several_models || command.takes == Takes::graph_models) {
    flag(table, "--model", to.models, "Models to train", some_of(with_all(models_of(command))));
  }
  const bool large = command.takes == Takes::layers || command.takes == Takes::parameters;
  const bool fixed =
      command.takes == Takes::trees || command.takes == Takes::sentences || command.takes == Takes::widths || large;
  if (command.takes == Takes::trees || command.takes == Takes::widths) {
    flag(table, "--data", workload.data, "Folder with a treebank for tree-lstm: train.txt, dev.txt", folder())
        ->default_str("generated data");
  }
  if (command.takes == Takes::trees) {
    flag(table, "--leaves", to.leaves, "Leaves per tree of tree-fc", whole_numbers(2, 1 << 16));
  }
  if (large) {
    const bool layers = command.takes == Takes::layers;
    to.hidden = command.width;
    flag(table, "--hidden", to.hidden, layers ? "Width of the layers" : "Rows and width of a parameter",
         whole_number(1, 1 << 15));
  } else if (command.takes == Takes::widths) {
    flag(table, "--hidden", to.hidden, "Hidden sizes, also used as embedding sizes", whole_numbers(1, 65536));
  } else if (fixed) {
    add_size_flag(table, "hidden", workload);
    add_size_flag(table, "embedding", workload);
  }
  if (command.takes == Takes::sentences) add_size_flag(table, "layers", workload);
  if (fixed && command.takes != Takes::parameters)
    flag(table, "--seed", workload.seed, "Seed of initial parameters and generated data", whole_number(0, UINT32_MAX));
  if (command.takes == Takes::sentences || command.takes == Takes::widths) {
    flag(table, "--samples", workload.samples, "Samples per measurement", whole_number(1, 1 << 24));
  } else if (!fixed) {
    add_workload_flags(table, workload);
  }
  if (command.takes != Takes::parameters) {
    flag(table, "--batch", to.batches, "Samples per minibatch",
         command.several_batches ? whole_numbers(1, 1 << 20) : whole_number(1, 1 << 20));
  }
  if (large || command.takes == Takes::widths) {
    flag(table, "--workers", to.workers, "Numbers of worker threads to compare", whole_numbers(1, 1024));
  } else {
    flag(table, "--workers", to.table.workers, "Worker threads", whole_number(1, 1024));
  }
  if (!fixed || large) {
    flag(table, "--turn-ms", to.table.turn_ms, "Shortest duration of a measurement in ms", whole_number(1, 1 << 20));
  }
  flag(table, "--repetitions", to.table.repetitions, "Measurements of each variant", whole_number(1, 1 << 20));
  flag(table, "--out", to.out, "Folder for the table and the plot (Markdown, JSON, SVG); created if missing",
       new_folder());
  show_presets(table, command);
  return &table;
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

std::function<bool()> add_tables(CLI::App& app, std::string called) {
  std::vector<std::function<bool()>> all;
  for (const Command& command : commands()) {
    const auto arguments = std::make_shared<TableArguments>();
    const CLI::App* const table = add_table(app, command, *arguments);
    all.push_back([&command, arguments, table, called] {
      if (table->parsed()) run(command, *arguments, called);
      return table->parsed();
    });
  }
  return [all] { return std::any_of(all.begin(), all.end(), [](const auto& one) { return one(); }); };
}

}  // namespace windrow::perf
