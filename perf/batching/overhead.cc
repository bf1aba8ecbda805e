// After figure 9 of Cavs: the share of time spent building graphs and scheduling them.
#include <chrono>
#include <cmath>
#include <random>

#include "batching/tables.h"
#include "batching/turns.h"
#include "windrow/models/graph_network.h"
#include "windrow/models/tree_fc.h"
#include "windrow/models/treebank.h"

namespace windrow::perf {
namespace {

double ms_since(std::chrono::steady_clock::time_point began) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count();
}

/// Times per minibatch, in ms.
struct Shares {
  double construction, scheduling, training;

  double all() const { return construction + training; }
};

/// A model with one minibatch, and graph data in the form that a reader delivers.
class Measured {
 public:
  Measured(const std::string& model, const TableOptions& options, std::size_t batch)
      : loaded_(model, options), trainer_(loaded_.trainer(batch, {.ahead = 1})), batch_(batch) {}

  void take_graphs(std::vector<GraphData> graphs) { graphs_ = std::move(graphs); }
  /// Runs one minibatch. Returns the training time in seconds.
  double run() {
    const auto& network = dynamic_cast<const GraphNetwork&>(*loaded_.workload().network);
    const auto began = std::chrono::steady_clock::now();
    for (const GraphData& graph : graphs_) InputGraph(network.function(), graph, "tree");
    construction_.push_back(ms_since(began));
    const std::int64_t before = trainer_.stats().schedule_ns;
    const Trainer::Pass pass = trainer_.train(batch_);
    scheduling_.push_back(static_cast<double>(trainer_.stats().schedule_ns - before) / 1e6);
    training_.push_back(1e3 * pass.seconds);
    return pass.seconds;
  }
  Shares shares() const { return {median_of(construction_), median_of(scheduling_), median_of(training_)}; }

 private:
  LoadedModel loaded_;
  Trainer& trainer_;
  const std::size_t batch_;
  std::vector<GraphData> graphs_;
  std::vector<double> construction_, scheduling_, training_;
};

std::unique_ptr<Measured> complete_trees(const TableOptions& options, int leaves, std::size_t batch) {
  TableOptions sized = options;
  sized.workload.data.clear();
  sized.workload.samples = batch;
  sized.workload.sizes["leaves"] = leaves;
  auto measured = std::make_unique<Measured>("tree-fc", sized, batch);
  std::mt19937 random(static_cast<unsigned>(options.workload.seed));
  std::vector<GraphData> graphs;
  while (graphs.size() < batch) {
    std::vector<std::int32_t> words(static_cast<std::size_t>(leaves));
    for (std::int32_t& word : words) word = static_cast<std::int32_t>(random() % 100);
    graphs.push_back(TreeFc::graph(words, 0));
  }
  measured->take_graphs(std::move(graphs));
  return measured;
}

std::unique_ptr<Measured> parsed_sentences(const TableOptions& options, std::size_t batch) {
  TableOptions sized = options;
  sized.workload.samples = batch;
  auto measured = std::make_unique<Measured>("tree-lstm", sized, batch);
  const std::vector<LabelledTree> trees = treebank(options.workload, batch);
  const Vocabulary words = vocabulary_of(trees);
  std::vector<GraphData> graphs;
  for (std::size_t i = 0; i < batch; ++i) graphs.push_back(numbered(trees[i % trees.size()], words));
  measured->take_graphs(std::move(graphs));
  return measured;
}

constexpr std::size_t batch_of_complete_trees = 64;

Index hidden_of(const std::string& model, const TableOptions& options) {
  const auto given = options.workload.sizes.find("hidden");
  return given == options.workload.sizes.end() ? workload_kind(model).sizes.front().preset : given->second;
}

/// A sweep: the quantity that varies, its values, and the measurements at each value.
struct Sweep {
  std::string model, title, over;
  std::vector<int> sizes;
  std::vector<std::unique_ptr<Measured>> measured = {};
  bool of_leaves = false;
};

void report(const Sweep& sweep, Result& result) {
  Plot plot{.title = sweep.title,
            .x = sweep.over,
            .y = "% of construction and training time",
            .places = {},
            .series = {{"construction", {}}, {"scheduling", {}}}};
  for (std::size_t i = 0; i < sweep.sizes.size(); ++i) {
    const Shares of = sweep.measured[i]->shares();
    const double construction = 100 * of.construction / of.all(), scheduling = 100 * of.scheduling / of.all();
    const auto size = static_cast<double>(sweep.sizes[i]);
    result.table.add({sweep.model, sweep.of_leaves ? size : NAN,
                      sweep.of_leaves ? static_cast<double>(batch_of_complete_trees) : size, of.construction,
                      of.scheduling, of.training, construction, scheduling});
    plot.places.push_back(std::to_string(sweep.sizes[i]));
    plot.series[0].values.push_back(construction);
    plot.series[1].values.push_back(scheduling);
  }
  result.plots.push_back(std::move(plot));
}

}  // namespace

Result overhead(const TableOptions& options) {
  Sweep by_leaves{.model = "tree-fc",
                  .title = "tree-fc, " + std::to_string(batch_of_complete_trees) + " trees per minibatch",
                  .over = "leaves per tree",
                  .sizes = options.leaves,
                  .of_leaves = true};
  Sweep by_batch{.model = "tree-lstm", .title = "tree-lstm", .over = "trees per minibatch", .sizes = options.batches};
  Turns turns;
  const auto add = [&](Sweep& sweep, std::unique_ptr<Measured> measured) {
    turns.add([one = measured.get()] { return one->run(); });
    sweep.measured.push_back(std::move(measured));
  };
  for (const int leaves : options.leaves) add(by_leaves, complete_trees(options, leaves, batch_of_complete_trees));
  for (const int batch : options.batches) add(by_batch, parsed_sentences(options, static_cast<std::size_t>(batch)));
  turns.take(options.repetitions);
  Result result{
      .name = "overhead",
      .title = "Overhead of graph construction and scheduling",
      .command = {},
      .about = "Training time per minibatch of tree-fc by leaves per tree (hidden " +
               std::to_string(hidden_of("tree-fc", options)) + ", " + std::to_string(batch_of_complete_trees) +
               " trees per minibatch) and of tree-lstm by batch size (" + sizes_text("tree-lstm", options) + "), " +
               turns_text(options) +
               ". Construction builds checked graphs with levels from the reader's output; a program that keeps "
               "its graphs does that once per sample, here it counts for each minibatch. Scheduling assigns "
               "the vertices of a minibatch to rows and slots. One minibatch is in flight at a time, so "
               "nothing overlaps. Training includes scheduling. Shares are of construction and training "
               "together.",
      .table = Table({{"model"},
                      {"leaves", 0},
                      {"batch", 0},
                      {"construction ms", 3},
                      {"scheduling ms", 3},
                      {"training ms", 2},
                      {"construction share", 2, " %"},
                      {"scheduling share", 2, " %"}}),
      .plots = {}};
  report(by_leaves, result);
  report(by_batch, result);
  return result;
}

}  // namespace windrow::perf
