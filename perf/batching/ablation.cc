// After figure 10 of Cavs: what each optimisation brings, on each model.
#include <algorithm>

#include "batching/tables.h"
#include "batching/turns.h"

namespace windrow::perf {
namespace {

struct Without {
  const char* name;
  void (*leave_out)(RunnerOptions& options);
};

const Without each[] = {
    {"specialisation", [](RunnerOptions& options) { options.optimisations.specialisation = false; }},
    {"packing", [](RunnerOptions& options) { options.optimisations.packing = false; }},
    {"eager", [](RunnerOptions& options) { options.optimisations.eager = false; }},
    {"lazy", [](RunnerOptions& options) { options.optimisations.lazy = false; }},
    {"slots", [](RunnerOptions& options) { options.optimisations.slots = false; }},
    {"sharing", [](RunnerOptions& options) { options.optimisations.sharing = false; }},
    {"fusion", [](RunnerOptions& options) { options.optimisations.fusion = false; }},
    {"streaming", [](RunnerOptions& options) { options.optimisations.streaming = false; }},
    {"splitting", [](RunnerOptions& options) { options.optimisations.splitting = false; }},
    {"ahead", [](RunnerOptions& options) { options.ahead = 1; }}};

/// All on, each one off alone, all off.
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

void leave_out(RunnerOptions& options, const std::string& optimisation) {
  const auto found =
      std::find_if(std::begin(each), std::end(each), [&](const auto& one) { return one.name == optimisation; });
  if (found == std::end(each)) throw MisuseError("there is no optimisation '" + optimisation + "'");
  found->leave_out(options);
}

Result ablation(const TableOptions& options) {
  const auto batch = static_cast<std::size_t>(options.batches.front());
  std::vector<Table::Column> columns = {{"model"}, {"unit"}, {"all on", 0}};
  Plot plot{.title = "Speed with optimisations left out, of that with all on",
            .x = "model",
            .y = "% of the speed with all on",
            .places = {},
            .series = {},
            .form = Plot::Form::bars};
  for (const Without& one : each) {
    columns.push_back({std::string("no ") + one.name, 1, " %"});
    plot.series.push_back({std::string("no ") + one.name, {}});
  }
  columns.push_back({"all off", 1, " %"});
  plot.series.push_back({"all off", {}});
  Result result{.name = "ablation",
                .title = "What each optimisation brings",
                .command = {},
                .about =
                    "Training with all of RunnerOptions::optimisations on and two minibatches under way (ahead), in "
                    "units/s; and the speed with each left out alone, or all, as a share of that. " +
                    std::to_string(batch) + " samples a minibatch, of " + std::to_string(options.workload.samples) +
                    ", " + turns_text(options) + ".",
                .table = Table(std::move(columns)),
                .plots = {}};
  for (const std::string& model : options.models) {
    LoadedModel loaded(model, options);
    const std::size_t samples = loaded.samples_of_a_turn(loaded.trainer(batch), loaded.samples());
    Turns turns;
    for (const RunnerOptions& variant : variants()) {
      Trainer& trainer = loaded.trainer(batch, variant);
      turns.add([&trainer, samples] { return trainer.train(samples).units_a_second(); });
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
