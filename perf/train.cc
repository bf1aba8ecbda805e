#include "train.h"

#include <algorithm>
#include <memory>
#include <sstream>

#include "machine.h"

namespace windrow::perf {
namespace {

constexpr std::size_t generated_trees = 4096;
/// Trees that are trained one vertex at a time between passes.
constexpr std::size_t unbatched_trees = 256;

std::vector<LabelledTree> trees_of(const TrainOptions& options) {
  if (!options.data.empty()) return read_treebank(std::filesystem::path(options.data) / "train.txt");
  std::istringstream text(generate_treebank(generated_trees, options.trainer.seed));
  return read_treebank(text, "generated trees");
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

/// One number of workers: an engine, a model on it, and what was measured.
class Contestant {
 public:
  Contestant(const TrainOptions& options, const std::vector<LabelledTree>& trees, int workers)
      : workers_(workers),
        peak_(workers),
        engine_({.policy = options.policy, .workers = workers}),
        trainer_(host_device(engine_), trees, options.trainer) {
    trainer_.train(std::min<std::size_t>(trees.size(), 512));  // memory, plans and caches
  }

  void pass() {
    using Batching = TreeTrainer::Batching;
    peak_.sample();
    const RunnerStats before = trainer_.stats();
    rates_.push_back(rate(trainer_.train()));
    const RunnerStats after = trainer_.stats();
    schedule_ns_.push_back(static_cast<double>(after.schedule_ns - before.schedule_ns) /
                           static_cast<double>(after.vertices - before.vertices));
    unbatched_.push_back(rate(trainer_.train(unbatched_trees, Batching::unbatched)));
  }

  Record record() const {
    const double best = *std::max_element(rates_.begin(), rates_.end());
    const double flops = 3 * trainer_.flops_a_tree();
    Record record;
    record.add("model", "tree-lstm").add("workers", static_cast<std::int64_t>(workers_)).add("unit", "trees");
    record.add("units_per_s", best).add("units_per_s_median", median(rates_)).add("flops_per_unit", flops);
    record.add("peak_gflops", peak_.gflops()).add("peak_share", best * flops / (peak_.gflops() * 1e9));
    record.add("schedule_ns_per_vertex", median(schedule_ns_)).add("unbatched_units_per_s", median(unbatched_));
    return record.add("peak_rss_mb", peak_rss_mb());
  }

 private:
  static double rate(const TreeTrainer::Pass& pass) { return static_cast<double>(pass.trees) / pass.seconds; }

  const int workers_;
  GemmPeak peak_;
  Engine engine_;
  TreeTrainer trainer_;
  std::vector<double> rates_, unbatched_, schedule_ns_;
};

}  // namespace

std::vector<Record> train_tree_lstm(const TrainOptions& options) {
  const std::vector<LabelledTree> trees = trees_of(options);
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
