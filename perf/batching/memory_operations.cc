// After table 2 of Cavs: the share of time spent on memory operations, by batch size.
#include "batching/tables.h"
#include "batching/turns.h"

namespace windrow::perf {
namespace {

const struct {
  const char* steps;
  Optimisations optimisations;
} fusions[] = {{"fused", {}}, {"fused, no slots", {.slots = false}}, {"unfused", {.fusion = false}}};

/// Times in ms per sample.
struct Spent {
  double products, arithmetic, moves;

  double share_of_moves() const { return 100 * moves / (products + arithmetic + moves); }
};

/// A variant of training, and the times of its steps in each repetition.
class Timed {
 public:
  Timed(LoadedModel& loaded, int batch, RunnerOptions runner)
      : trainer_(loaded.trainer(static_cast<std::size_t>(batch), timed(runner))),
        samples_(loaded.samples_of_a_turn(trainer_, loaded.samples())) {}

  double run() {
    const StepTimes before = trainer_.stats().times;
    const double rate = trainer_.train(samples_).units_per_second();
    const StepTimes after = trainer_.stats().times;
    const auto add = [&](std::vector<double>& to, std::int64_t ns) {
      to.push_back(static_cast<double>(ns) / 1e6 / static_cast<double>(samples_));
    };
    add(products_, after.product_ns - before.product_ns);
    add(arithmetic_, after.arithmetic_ns - before.arithmetic_ns);
    add(moves_, after.move_ns - before.move_ns);
    return rate;
  }
  Spent spent() const { return {median_of(products_), median_of(arithmetic_), median_of(moves_)}; }

 private:
  static RunnerOptions timed(RunnerOptions runner) {
    runner.time_steps = true;
    return runner;
  }

  Trainer& trainer_;
  const std::size_t samples_;
  std::vector<double> products_, arithmetic_, moves_;
};

}  // namespace

Result memory_operations(const TableOptions& options) {
  Result result{.name = "memory_operations",
                .title = "Time of memory operations and of computation",
                .command = {},
                .about =
                    "Worker time per training sample in ms, by kind of step: matrix products with parameters; other "
                    "arithmetic; memory operations, that is lookups, gathers, scatters, copies and fills. Fused, the "
                    "default: small steps run over tiles that stay in the cache. Unfused: each step runs over all of "
                    "its rows. No slots: each vertex gathers the states of its children. The clock is read around each "
                    "step (RunnerOptions::time_steps). " +
                    std::to_string(options.workload.samples) + " samples, " + turns_text(options) + ".",
                .table = Table({{"model"},
                                {"batch", 0},
                                {"variant"},
                                {"products ms", 3},
                                {"arithmetic ms", 3},
                                {"memory ms", 3},
                                {"memory share", 1, " %"},
                                {"units/s", 0}}),
                .plots = {}};
  for (const std::string& model : options.models) {
    LoadedModel loaded(model, options);
    Turns turns;
    std::vector<std::unique_ptr<Timed>> all;
    for (const int batch : options.batches) {
      for (const auto& variant : fusions) {
        all.push_back(std::make_unique<Timed>(loaded, batch, RunnerOptions{.optimisations = variant.optimisations}));
        turns.add([one = all.back().get()] { return one->run(); });
      }
    }
    turns.take(options.repetitions);
    Plot plot{.title = model + " (" + sizes_text(model, options) + "), fused",
              .x = loaded.workload().kind->sample + "s per minibatch",
              .y = "worker time per " + loaded.workload().kind->sample + " in ms",
              .places = {},
              .series = {{"products", {}}, {"arithmetic", {}}, {"memory operations", {}}},
              .form = Plot::Form::stacked};
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Spent spent = all[i]->spent();
      const int batch = options.batches[i / std::size(fusions)];
      const std::size_t variant = i % std::size(fusions);
      result.table.add({model, static_cast<double>(batch), fusions[variant].steps, spent.products, spent.arithmetic,
                        spent.moves, spent.share_of_moves(), turns.median(i)});
      if (variant != 0) continue;
      plot.places.push_back(std::to_string(batch));
      plot.series[0].values.push_back(spent.products);
      plot.series[1].values.push_back(spent.arithmetic);
      plot.series[2].values.push_back(spent.moves);
    }
    result.plots.push_back(std::move(plot));
  }
  return result;
}

}  // namespace windrow::perf
