#include "train.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <sstream>

#include "batching/interleaved_runs.h"
#include "engine/process.h"
#include "peak.h"
#include "program.h"
#include "windrow/models/datasets.h"
#include "windrow/models/internal/graph_network.h"
#include "windrow/models/internal/tree_fc.h"

namespace windrow::perf {
namespace {

double most(const std::vector<double>& values) { return *std::max_element(values.begin(), values.end()); }

TrainerOptions with_rate(TrainerOptions options, double rate) {
  options.optimiser.rate = rate;
  return options;
}

/// Graphs of a minibatch in the form that a reader delivers, for the models of trees; empty for others. Sets
/// `reading_ms` if it reads a file.
std::vector<GraphData> delivered_graphs(const std::string& model, const Workload& workload, std::size_t batch,
                                        std::optional<double>& reading_ms) {
  std::vector<GraphData> graphs;
  const WorkloadOptions& options = workload.options;
  if (model == "tree-fc") {
    const auto leaves = static_cast<std::size_t>(options.size("leaves"));
    while (graphs.size() < batch) {
      graphs.push_back(TreeFc::graph(std::vector<std::int32_t>(leaves), 0));
    }
  } else if (model == "tree-lstm") {
    std::istringstream text(generate_treebank(batch, options.seed));
    const auto began = std::chrono::steady_clock::now();
    const std::vector<LabelledTree> trees = options.data.empty()
                                                ? read_treebank(text, "generated")
                                                : read_treebank(std::filesystem::path(options.data) / "train.txt");
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
    if (!options.data.empty()) reading_ms = took.count();
    const Vocabulary words = vocabulary_of(trees, 2);
    while (graphs.size() < batch) graphs.push_back(numbered(trees[graphs.size() % trees.size()], words));
  }
  for (GraphData& graph : graphs) {  // any words and labels do
    for (auto& [name, numbers] : graph.indices) {
      for (std::int32_t& number : numbers) number = std::min(number, 0);
    }
  }
  return graphs;
}

/// One number of workers: an engine, a workload on it, and its measurements.
class Contestant {
 public:
  Contestant(const TrainOptions& options, int workers)
      : options_(options),
        workers_(workers),
        peak_(std::min(workers, default_workers())),
        engine_({.policy = options.policy, .workers = workers}),
        workload_(make_workload(options.model, host_device(engine_), options.workload)),
        trainer_(host_device(engine_), workload_, with_rate(options.trainer, workload_.kind->learning_rate)),
        delivered_(delivered_graphs(options.model, workload_, options.trainer.minibatch, reading_ms_)) {
    if (options.inference) {
      if (workload_.validation.empty()) {
        throw MisuseError(options.model + ": no validation " + workload_.kind->sample + "s in " +
                          options.workload.data + "; expected at least one for --inference");
      }
      evaluate();
      return;
    }
    trainer_.train(std::min<std::size_t>(workload_.training.size(), 512));  // warms up memory, plans and caches
    trainer_.train(1, Trainer::Batching::unbatched);
  }

  void pass() {
    peak_.sample();
    construct();
    const RunnerStats before = trainer_.stats();
    last_ = options_.inference ? evaluate() : trainer_.train();
    rates_.push_back(last_.units_per_second());
    const RunnerStats after = trainer_.stats();
    const double steps =
        std::ceil(static_cast<double>(last_.samples) / static_cast<double>(options_.trainer.minibatch));
    batches_.push_back(static_cast<double>(after.batches - before.batches) / steps);
    schedule_ns_.push_back(static_cast<double>(after.schedule_ns - before.schedule_ns) /
                           static_cast<double>(after.vertices - before.vertices));
    if (!options_.inference) unbatched_.push_back(trainer_.train_some_unbatched().units_per_second());
  }

  Record record() const {
    const double best = most(rates_);
    const double flops = (options_.inference ? 1 : 3) * last_.flops / static_cast<double>(last_.units);
    const WorkloadKind& kind = *workload_.kind;
    const WorkloadOptions& options = workload_.options;
    Record record = {{"model", options_.model}};
    if (options_.inference) record["mode"] = "inference";
    record.update({{"workers", workers_},
                   {"unit", kind.unit},
                   {"units_per_s", best},
                   {"units_per_s_median", median_of(rates_)},
                   {"flops_per_unit", flops},
                   {"peak_gflops", peak_.gflops()},
                   {"peak_share", best * flops / (peak_.gflops() * 1e9)}});
    if (reading_ms_) record["reading_ms"] = *reading_ms_;
    if (!delivered_.empty()) record["construction_ns_per_vertex"] = median_of(construction_ns_);
    record.update({{"schedule_ns_per_vertex", median_of(schedule_ns_)},
                   {"batches_per_minibatch", median_of(batches_)},
                   {"vertices_per_unit", vertices_per_unit()}});
    if (!options_.inference) record["unbatched_units_per_s"] = most(unbatched_);
    record.update({{"peak_rss_mb", peak_resident_bytes() / 1024 / 1024}, {"formula", workload_.formula}});
    if (!kind.cells.empty()) record["cell"] = options.cell;
    if (kind.has_graph_mode) record["graph"] = options.graph_mode.value_or(true) ? "on" : "off";
    for (const WorkloadSize& size : kind.sizes) record[size.name] = options.size(size.name.c_str());
    record.update({{"batch", options_.trainer.minibatch},
                   {"policy", to_string(options_.policy)},
                   {"schedule", to_string(options_.trainer.runner.schedule)}});
    if (!options_.without.empty()) record["without"] = options_.without;
    record["data"] = options.data.empty() ? "generated" : options.data;
    return record;
  }

 private:
  /// Builds the graphs of a minibatch, if they are known.
  void construct() {
    if (delivered_.empty()) return;
    const VertexFunction& function = dynamic_cast<const GraphNetwork&>(*workload_.network).function();
    double vertices = 0;
    const auto began = std::chrono::steady_clock::now();
    for (const GraphData& data : delivered_) vertices += InputGraph(function, data, "tree").vertices();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - began;
    construction_ns_.push_back(took.count() / vertices);
  }

  double vertices_per_unit() const {
    double vertices = 0, units = 0;
    for (const Sample& sample : options_.inference ? workload_.validation : workload_.training) {
      vertices += static_cast<double>(sample.vertices);
      units += static_cast<double>(sample.units);
    }
    return vertices / units;
  }

  /// One pass over the validation set.
  Trainer::Pass evaluate() {
    Trainer::Pass pass;
    pass.samples = workload_.validation.size();
    for (const Sample& sample : workload_.validation) {
      pass.units += sample.units;
      pass.flops += sample.flops;
    }
    const auto began = std::chrono::steady_clock::now();
    trainer_.evaluate();
    pass.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    return pass;
  }

  const TrainOptions& options_;
  const int workers_;
  program::ProductPeak peak_;
  Engine engine_;
  const program::ToldOnce once_{engine_};
  Workload workload_;
  Trainer trainer_;
  std::optional<double> reading_ms_;
  const std::vector<GraphData> delivered_;
  Trainer::Pass last_;
  std::vector<double> rates_, unbatched_, construction_ns_, schedule_ns_, batches_;
};

}  // namespace

std::vector<Record> train(const TrainOptions& options) {
  std::vector<std::unique_ptr<Contestant>> contestants;
  for (int workers : options.workers) contestants.push_back(std::make_unique<Contestant>(options, workers));
  for (int pass = 0; pass < options.passes; ++pass) {
    for (const auto& contestant : contestants) contestant->pass();
  }
  std::vector<Record> records;
  for (const auto& contestant : contestants) records.push_back(contestant->record());
  return records;
}

}  // namespace windrow::perf
