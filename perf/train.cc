#include "train.h"

#include <algorithm>
#include <memory>

#include "machine.h"
#include "program.h"

namespace windrow::perf {
namespace {

/// About how many vertices are trained one at a time between passes.
constexpr std::int64_t unbatched_vertices = 10000;

double most(const std::vector<double>& values) { return *std::max_element(values.begin(), values.end()); }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

/// One number of workers: an engine, a model on it, and what was measured.
class Contestant {
 public:
  Contestant(const TrainOptions& options, const std::vector<LabelledTree>& trees, int workers)
      : options_(options),
        workers_(workers),
        peak_(std::min(workers, default_workers())),
        engine_({.policy = options.policy, .workers = workers}),
        trainer_(host_device(engine_), trees, options.trainer) {
    trainer_.train(std::min<std::size_t>(trees.size(), 512));  // memory, plans and caches
    trainer_.train(1, TreeTrainer::Batching::unbatched);
  }

  void pass() {
    peak_.sample();
    const RunnerStats before = trainer_.stats();
    const TreeTrainer::Pass batched = trainer_.train();
    rates_.push_back(rate(batched));
    const RunnerStats after = trainer_.stats();
    schedule_ns_.push_back(static_cast<double>(after.schedule_ns - before.schedule_ns) /
                           static_cast<double>(after.vertices - before.vertices));
    const auto some = unbatched_vertices * static_cast<std::int64_t>(batched.trees) / batched.vertices;
    const auto trees = std::clamp<std::size_t>(static_cast<std::size_t>(some), 1, batched.trees);
    unbatched_.push_back(rate(trainer_.train(trees, TreeTrainer::Batching::unbatched)));
  }

  Record record() const {
    const double best = most(rates_);
    const double flops = 3 * trainer_.flops_a_tree();
    Record record;
    record.add("model", "tree-lstm").add("workers", static_cast<std::int64_t>(workers_)).add("unit", "trees");
    record.add("units_per_s", best).add("units_per_s_median", median(rates_)).add("flops_per_unit", flops);
    record.add("peak_gflops", peak_.gflops()).add("peak_share", best * flops / (peak_.gflops() * 1e9));
    record.add("schedule_ns_per_vertex", median(schedule_ns_)).add("unbatched_units_per_s", most(unbatched_));
    record.add("peak_rss_mb", peak_rss_mb());
    const auto size = [&](const char* name, auto value) { record.add(name, static_cast<std::int64_t>(value)); };
    size("hidden", options_.trainer.hidden);
    size("embedding", options_.trainer.embedding);
    size("batch", options_.trainer.batch);
    record.add("policy", std::string(to_string(options_.policy)));
    record.add("schedule", std::string(to_string(options_.trainer.schedule)));
    return record.add("data", options_.data.empty() ? "generated" : options_.data);
  }

 private:
  static double rate(const TreeTrainer::Pass& pass) { return static_cast<double>(pass.trees) / pass.seconds; }

  const TrainOptions& options_;
  const int workers_;
  GemmPeak peak_;
  Engine engine_;
  TreeTrainer trainer_;
  std::vector<double> rates_, unbatched_, schedule_ns_;
};

}  // namespace

std::vector<Record> train_tree_lstm(const TrainOptions& options) {
  const std::vector<LabelledTree> trees = program::trees_of(options.data, program::training_part, options.trainer.seed);
  std::vector<std::unique_ptr<Contestant>> contestants;
  for (int workers : options.workers) contestants.push_back(std::make_unique<Contestant>(options, trees, workers));
  for (int pass = 0; pass < options.passes; ++pass) {
    for (const auto& contestant : contestants) contestant->pass();
  }
  std::vector<Record> records;
  for (const auto& contestant : contestants) records.push_back(contestant->record());
  return records;
}

}  // namespace windrow::perf
