// After table 1 of DyNet: throughput of each model without batching and with each schedule policy.
#include <algorithm>

#include "batching/tables.h"
#include "batching/turns.h"

namespace windrow::perf {
namespace {

constexpr SchedulePolicy policies[] = {SchedulePolicy::depth, SchedulePolicy::agenda, SchedulePolicy::complete,
                                       SchedulePolicy::level};

/// The number of samples for one vertex at a time, which is slow.
constexpr std::size_t serial_samples = 4;

}  // namespace

Result schedules(const TableOptions& options) {
  const auto batch = static_cast<std::size_t>(options.batches.front());
  std::vector<Table::Column> columns = {{"model"}, {"unit"}, {"no batching", 0}};
  Plot plot{.title = "Speedup of each schedule policy over no batching",
            .x = "model",
            .y = "speedup",
            .places = {},
            .series = {},
            .form = Plot::Form::bars,
            .scale = Plot::Scale::logarithmic};
  for (const SchedulePolicy policy : policies) {
    const std::string name(to_string(policy));
    columns.push_back({name, 0});
    plot.series.push_back({name, {}});
  }
  columns.push_back({"best speedup", 1, " x"});
  Result result{.name = "schedules",
                .title = "Throughput without batching and with each schedule policy",
                .command = {},
                .about =
                    "Training throughput in units/s. No batching: schedule policy serial, one vertex at a time by the "
                    "same kernels, in minibatches of at most four samples. Best speedup: the fastest policy over no "
                    "batching. The parser builds its graphs while it runs, from lazy expressions. " +
                    std::to_string(batch) + " samples per minibatch, " + std::to_string(options.workload.samples) +
                    " samples, " + turns_text(options) + ".",
                .table = Table(std::move(columns)),
                .plots = {}};
  for (const std::string& model : options.models) {
    LoadedModel loaded(model, options);
    Turns turns;
    const auto add = [&](SchedulePolicy policy, std::size_t least) {
      Trainer& trainer = loaded.trainer(std::min(batch, least), {.schedule = policy});
      const std::size_t samples = loaded.samples_of_a_turn(trainer, least);
      return turns.add([&trainer, samples] { return trainer.train(samples).units_per_second(); });
    };
    const std::size_t serial = add(SchedulePolicy::serial, std::min(serial_samples, loaded.samples()));
    std::vector<Table::Entry> row = {model, loaded.workload().kind->unit + "/s"};
    for (const SchedulePolicy policy : policies) add(policy, loaded.samples());
    turns.take(options.repetitions);
    row.push_back(turns.median(serial));
    double best = 0;
    for (std::size_t i = 0; i < plot.series.size(); ++i) {
      row.push_back(turns.median(i + 1));
      plot.series[i].values.push_back(turns.ratio(i + 1, serial));
      best = std::max(best, turns.ratio(i + 1, serial));
    }
    row.push_back(best);
    result.table.add(std::move(row));
    plot.places.push_back(model);
    result.about += " " + model + ": " + sizes_text(model, options) + ".";
  }
  result.plots.push_back(std::move(plot));
  return result;
}

}  // namespace windrow::perf
