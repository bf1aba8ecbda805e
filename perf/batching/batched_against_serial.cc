// After section 5.1 of Cavs: one model, trained in batches and one vertex at a time, by batch size.
#include <algorithm>
#include <map>

#include "batching/tables.h"
#include "batching/turns.h"

namespace windrow::perf {
namespace {

/// The largest minibatch that is measured one vertex at a time: the cost per sample is the same in larger ones.
constexpr int largest_serial = 2;

}  // namespace

Result batched_against_serial(const TableOptions& options) {
  const std::string& model = options.models.front();
  TableOptions enough = options;
  const int largest = *std::max_element(options.batches.begin(), options.batches.end());
  enough.workload.samples = std::max(options.workload.samples, static_cast<std::size_t>(largest));
  LoadedModel loaded(model, enough);
  Turns turns;
  const auto add = [&](int samples_of_a_batch, const RunnerOptions& runner) {
    const auto batch = static_cast<std::size_t>(samples_of_a_batch);
    Trainer& trainer = loaded.trainer(batch, runner);
    const std::size_t samples = loaded.samples_of_a_turn(trainer, batch);
    return turns.add([&trainer, samples] { return trainer.train(samples).units_per_second(); });
  };
  std::map<int, std::size_t> batched, serial;  // by batch size
  for (const int batch : options.batches) {
    batched[batch] = add(batch, {});
    const int few = std::min(batch, largest_serial);
    if (!serial.contains(few)) serial[few] = add(few, {.schedule = SchedulePolicy::serial});
  }
  turns.take(options.repetitions);

  const std::string unit = loaded.workload().kind->unit + "/s";
  Result result{.name = "batched_against_serial",
                .title = "Speedup of batching over one vertex at a time",
                .command = {},
                .about = "Training throughput of " + model + " (" + sizes_text(model, options) + ") in " + unit + ", " +
                         turns_text(options) +
                         ". Serial: schedule policy serial, one vertex at a time by the same kernels on one row each, "
                         "in minibatches of at most " +
                         std::to_string(largest_serial) +
                         " samples, because larger ones take the same time per sample.",
                .table = Table({{"batch", 0}, {"batched " + unit, 0}, {"serial " + unit, 0}, {"speedup", 1, " x"}}),
                .plots = {}};
  Plot plot{.title = model + ": speedup of batching over one vertex at a time",
            .x = "samples per minibatch",
            .y = "speedup",
            .places = {},
            .series = {{"batched / serial", {}}},
            .scale = Plot::Scale::logarithmic};
  for (const auto& [batch, number] : batched) {
    const std::size_t base = serial.at(std::min(batch, largest_serial));
    const double factor = turns.ratio(number, base);
    result.table.add({static_cast<double>(batch), turns.median(number), turns.median(base), factor});
    plot.places.push_back(std::to_string(batch));
    plot.series[0].values.push_back(factor);
  }
  result.plots.push_back(std::move(plot));
  return result;
}

}  // namespace windrow::perf
