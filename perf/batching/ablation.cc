// After figure 10 of Cavs: throughput of each model with each optimisation disabled.
#include <algorithm>

#include "batching/tables.h"
#include "batching/turns.h"

namespace windrow::perf {
namespace {

struct Without {
  const char* name;
  const char* about;
  void (*leave_out)(RunnerOptions& options);
};

const Without each[] = {
    {"specialisation", "omit computation on children and inputs that a vertex lacks",
     [](RunnerOptions& options) { options.optimisations.specialisation = false; }},
    {"eager", "compute what depends on no child first, for all vertices at once",
     [](RunnerOptions& options) { options.optimisations.eager = false; }},
    {"lazy", "compute what no other vertex needs last, for all vertices at once; likewise parameter gradients",
     [](RunnerOptions& options) { options.optimisations.lazy = false; }},
    {"slots", "write a state directly to where its consumers read it",
     [](RunnerOptions& options) { options.optimisations.slots = false; }},
    {"in-place", "let attention read the states of children where they lie, without copies",
     [](RunnerOptions& options) { options.optimisations.in_place = false; }},
    {"sharing", "reuse the memory of values that are no longer needed",
     [](RunnerOptions& options) { options.optimisations.sharing = false; }},
    {"fusion", "run small steps one after another over tiles that stay in the cache",
     [](RunnerOptions& options) { options.optimisations.fusion = false; }},
    {"streaming", "overlap computation for all vertices with computation level by level",
     [](RunnerOptions& options) { options.optimisations.streaming = false; }},
    {"splitting", "cut large ops by rows for several workers",
     [](RunnerOptions& options) { options.optimisations.splitting = false; }},
    {"ahead", "keep two minibatches in flight", [](RunnerOptions& options) { options.ahead = 1; }}};

/// All optimisations on, then each one off alone, then all off.
std::vector<RunnerOptions> variants() {
  std::vector<RunnerOptions> all(1);
  RunnerOptions off;
  for (const Without& one : each) {
    one.leave_out(all.emplace_back());
    one.leave_out(off);
  }
  all.push_back(off);
  return all;
}

}  // namespace

std::vector<std::string> optimisation_names() {
  std::vector<std::string> names;
  for (const Without& one : each) names.push_back(one.name);
  return names;
}

std::string optimisations_text() {
  std::string text = "Optimisations:\n";
  for (const Without& one : each) {
    const std::string name = one.name;
    text += "  " + name + std::string(16 - name.size(), ' ') + one.about + "\n";
  }
  return text;
}

void leave_out(RunnerOptions& options, const std::string& optimisation) {
  const auto found =
      std::find_if(std::begin(each), std::end(each), [&](const auto& one) { return one.name == optimisation; });
  if (found == std::end(each))
    throw MisuseError("unknown optimisation '" + optimisation + "'; expected a name listed by --help");
  found->leave_out(options);
}

Result ablation(const TableOptions& options) {
  const auto batch = static_cast<std::size_t>(options.batches.front());
  std::vector<Table::Column> columns = {{"model"}, {"unit"}, {"all on", 0}};
  Plot plot{.title = "Throughput with optimisations disabled, relative to all on",
            .x = "model",
            .y = "% of the throughput with all on",
            .places = {},
            .series = {},
            .form = Plot::Form::bars};
  for (const Without& one : each) {
    columns.push_back({std::string("no ") + one.name, 1, " %"});
    plot.series.push_back({std::string("no ") + one.name, {}});
  }
  columns.push_back({"all off", 1, " %"});
  plot.series.push_back({"all off", {}});
  Result result{
      .name = "ablation",
      .title = "Throughput with each optimisation disabled",
      .command = {},
      .about =
          "Training throughput. All on: every optimisation of the runner (RunnerOptions::optimisations), with "
          "two minibatches in flight (ahead), in units/s. The other columns: one optimisation disabled, or "
          "all, as a share of the throughput with all on. " +
          std::to_string(batch) + " samples per minibatch, " + std::to_string(options.workload.samples) + " samples, " +
          turns_text(options) + ".",
      .table = Table(std::move(columns)),
      .plots = {}};
  for (const std::string& model : options.models) {
    LoadedModel loaded(model, options);
    const std::size_t samples = loaded.samples_of_a_turn(loaded.trainer(batch), loaded.samples());
    Turns turns;
    for (const RunnerOptions& variant : variants()) {
      Trainer& trainer = loaded.trainer(batch, variant);
      turns.add([&trainer, samples] { return trainer.train(samples).units_per_second(); });
    }
    turns.take(options.repetitions);
    std::vector<Table::Entry> row = {model, loaded.workload().kind->unit + "/s", turns.median(0)};
    for (std::size_t i = 0; i < plot.series.size(); ++i) {
      row.push_back(100 * turns.ratio(i + 1, 0));
      plot.series[i].values.push_back(100 * turns.ratio(i + 1, 0));
    }
    result.table.add(std::move(row));
    plot.places.push_back(model);
    result.about += " " + model + ": " + sizes_text(model, options) + ".";
  }
  result.plots.push_back(std::move(plot));
  return result;
}

}  // namespace windrow::perf
