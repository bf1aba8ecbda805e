// A Tree-LSTM as lazy expressions compared with its vertex function: the cost of recording a graph and of finding its
// vertices again for each minibatch.
#include <chrono>
#include <cmath>
#include <ctime>
#include <functional>

#include "batching/tables.h"
#include "batching/turns.h"
#include "windrow/batching/lazy.h"
#include "windrow/batching/runner.h"
#include "windrow/models/tree_lstm.h"
#include "windrow/models/treebank.h"

namespace windrow::perf {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point began) { return std::chrono::duration<double>(Clock::now() - began).count(); }

/// A tree in the form that a program which walks it would use.
struct Walked {
  GraphData graph;
  std::vector<std::int32_t> words, labels;

  explicit Walked(GraphData data)
      : graph(std::move(data)), words(graph.indices.at("word")), labels(graph.indices.at("label")) {}
  std::int32_t root() const { return static_cast<std::int32_t>(words.size()) - 1; }
};

/// The cell of tree_lstm.h, written operation by operation, with the same parameters.
class WrittenTreeLstm {
 public:
  WrittenTreeLstm(const Parameters& parameters, Index hidden)
      : hidden_(hidden),
        words_(parameters.find("words")),
        leaf_(parameters.find("leaf")),
        inner_(parameters.find("inner")),
        bias_(parameters.find("bias")),
        forget_(parameters.find("forget")),
        forget_bias_(parameters.find("forget_bias")),
        head_(parameters.find("head")),
        head_bias_(parameters.find("head_bias")) {}

  /// Records a tree, and appends the losses of all its vertices to `losses`.
  void record(LazyGraph& graph, const Walked& tree, std::vector<LazyExpr>& losses) const {
    visit(graph, tree, tree.root(), losses);
  }

 private:
  struct State {
    LazyExpr h, c;
  };

  State visit(LazyGraph& graph, const Walked& tree, std::int32_t vertex, std::vector<LazyExpr>& losses) const {
    const auto v = static_cast<std::size_t>(vertex);
    const auto child = static_cast<std::size_t>(tree.graph.child_begin[v]);
    State state = tree.words[v] >= 0 ? leaf(graph, tree.words[v])
                                     : inner(visit(graph, tree, tree.graph.children[child], losses),
                                             visit(graph, tree, tree.graph.children[child + 1], losses));
    losses.push_back(softmax_cross_entropy(affine(state.h, head_, head_bias_), graph.index(tree.labels[v])));
    return state;
  }
  State leaf(LazyGraph& graph, std::int32_t word) const {
    const LazyExpr gates = affine(embedding(words_, graph.index(word)), leaf_, bias_);
    return of(gates, gate(gates, 0) * tanh(slice(gates, 2 * hidden_, 3 * hidden_)));
  }
  State inner(const State& left, const State& right) const {
    const LazyExpr gates = affine(concat(left.h, right.h), inner_, bias_);
    const LazyExpr kept = keep(left) * left.c + keep(right) * right.c;
    return of(gates, gate(gates, 0) * tanh(slice(gates, 2 * hidden_, 3 * hidden_)) + kept);
  }
  State of(const LazyExpr& gates, LazyExpr c) const {
    LazyExpr h = gate(gates, 1) * tanh(c);
    return {std::move(h), std::move(c)};
  }
  LazyExpr gate(const LazyExpr& gates, Index number) const {
    return sigmoid(slice(gates, number * hidden_, (number + 1) * hidden_));
  }
  LazyExpr keep(const State& child) const { return sigmoid(affine(child.h, forget_, forget_bias_)); }

  const Index hidden_;
  const Parameter words_, leaf_, inner_, bias_, forget_, forget_bias_, head_, head_bias_;
};

/// The vertex function and the lazy expressions, with the same trees and parameters.
class BothWays {
 public:
  BothWays(const TableOptions& options, Index hidden, const std::vector<GraphData>& trees, Index vocabulary)
      : engine_({.workers = options.workers}),
        parameters_(device_, options.workload.seed),
        function_(TreeLstm(parameters_, {vocabulary, hidden, hidden, tree_labels}).function()),
        runner_(device_, function_, parameters_),
        written_(parameters_, hidden),
        lazy_(device_, parameters_),
        batch_(static_cast<std::size_t>(options.batches.front())) {
    for (const GraphData& tree : trees) {
      graphs_.emplace_back(function_, tree);
      walked_.emplace_back(tree);
    }
  }

  /// Throws Error unless both variants compute the same losses, up to rounding.
  void compare_losses() {
    double found = 0, written = 0;
    std::vector<double> unused;
    by_minibatch(unused, [&](std::size_t begin, std::size_t end) {
      found += runner_.differentiate(pointers(begin, end)).loss();
      const std::vector<LazyExpr> losses = record(begin, end);
      written += sum(losses).scalar();
      lazy_.clear();
    });
    if (std::abs(found - written) <= 1e-3 * std::abs(found)) return;
    throw Error("lazy: the losses of the vertex function sum to " + std::to_string(found) +
                ", those of the lazy expressions to " + std::to_string(written) + "; expected equal sums");
  }

  /// Each of the two runs one turn and returns trees per second.
  double by_function() {
    return by_minibatch(function_cpu_, [&](std::size_t begin, std::size_t end) {
      runner_.differentiate(pointers(begin, end));
      parameters_.sgd(0);
    });
  }
  double by_expressions() {
    const LazyStats before = lazy_.stats();
    recording_ = 0;
    const double speed = by_minibatch(lazy_cpu_, [&](std::size_t begin, std::size_t end) {
      const Clock::time_point began = Clock::now();
      const std::vector<LazyExpr> losses = record(begin, end);
      recording_ += seconds_since(began);
      lazy_.backward(losses);
      parameters_.sgd(0);
      lazy_.clear();
    });
    const LazyStats after = lazy_.stats();
    const auto nodes = static_cast<double>(after.expressions - before.expressions);
    nodes_ = nodes / static_cast<double>(graphs_.size());
    recording_ns_.push_back(1e9 * recording_ / nodes);
    lowering_ns_.push_back(static_cast<double>(after.lower_ns - before.lower_ns) / nodes);
    return speed;
  }

  /// The speed of lazy expressions by CPU time, in percent of that of the vertex function.
  double share_by_cpu() const { return 100 * median_of(function_cpu_) / median_of(lazy_cpu_); }
  double nodes() const { return nodes_; }                           ///< per tree
  double recording_ns() const { return median_of(recording_ns_); }  ///< of a node
  double lowering_ns() const { return median_of(lowering_ns_); }    ///< of a node

 private:
  std::vector<const InputGraph*> pointers(std::size_t begin, std::size_t end) const {
    std::vector<const InputGraph*> some;
    for (std::size_t i = begin; i < end; ++i) some.push_back(&graphs_[i]);
    return some;
  }
  std::vector<LazyExpr> record(std::size_t begin, std::size_t end) {
    std::vector<LazyExpr> losses;
    for (std::size_t i = begin; i < end; ++i) written_.record(lazy_, walked_[i], losses);
    return losses;
  }
  double by_minibatch(std::vector<double>& cpu, const std::function<void(std::size_t, std::size_t)>& push) {
    const std::clock_t cpu_before = std::clock();
    const Clock::time_point began = Clock::now();
    for (std::size_t begin = 0; begin < graphs_.size(); begin += batch_) {
      push(begin, std::min(begin + batch_, graphs_.size()));
    }
    engine_.wait_all();
    cpu.push_back(static_cast<double>(std::clock() - cpu_before));
    return static_cast<double>(graphs_.size()) / seconds_since(began);
  }

  Engine engine_;
  const program::ToldOnce once_{engine_};
  const Device device_ = host_device(engine_);
  Parameters parameters_;
  const VertexFunction function_;
  Runner runner_;
  const WrittenTreeLstm written_;
  LazyGraph lazy_;
  const std::size_t batch_;
  std::vector<InputGraph> graphs_;
  std::vector<Walked> walked_;
  double recording_ = 0, nodes_ = 0;
  std::vector<double> recording_ns_, lowering_ns_, function_cpu_, lazy_cpu_;
};

Result empty_result(const TableOptions& options, std::size_t trees) {
  return {
      .name = "lazy",
      .title = "Lazy expressions compared with a vertex function",
      .command = {},
      .about =
          "Training throughput of the binary Tree-LSTM in trees/s by hidden size, which is also the embedding "
          "size: as a vertex function with graphs loaded in advance, and as lazy expressions, recorded operation by "
          "operation again for each minibatch. " +
          std::to_string(options.batches.front()) + " trees per minibatch, " + std::to_string(trees) + " trees, " +
          turns_text(options) +
          ". CPU time is that of all threads together, including spinning. A node is one recorded expression. "
          "Recording includes the walk over the tree; lowering finds the vertices among the nodes. Both variants "
          "computed the same losses.",
      .table = Table({{"hidden", 0},
                      {"vertex function", 0},
                      {"lazy", 0},
                      {"lazy / vertex function", 1, " %"},
                      {"lazy / vertex function (CPU time)", 1, " %"},
                      {"nodes per tree", 0},
                      {"recording ns per node", 0},
                      {"lowering ns per node", 0}}),
      .plots = {{.title = "tree-lstm, " + std::to_string(options.batches.front()) + " trees per minibatch",
                 .x = "hidden size",
                 .y = "trees/s",
                 .places = {},
                 .series = {{"vertex function", {}}, {"lazy", {}}},
                 .form = Plot::Form::bars,
                 .scale = Plot::Scale::logarithmic}}};
}

}  // namespace

Result lazy_expressions(const TableOptions& options) {
  const std::vector<LabelledTree> trees = treebank(options.workload, options.workload.samples);
  const Vocabulary words = vocabulary_of(trees);
  std::vector<GraphData> graphs;
  for (std::size_t i = 0; i < std::min(trees.size(), options.workload.samples); ++i) {
    graphs.push_back(numbered(trees[i], words));
  }
  std::vector<std::unique_ptr<BothWays>> all;
  Turns turns;
  for (const int hidden : options.hidden) {
    BothWays& both = *all.emplace_back(std::make_unique<BothWays>(options, hidden, graphs, words.size()));
    both.compare_losses();
    turns.add([&both] { return both.by_function(); });
    turns.add([&both] { return both.by_expressions(); });
  }
  turns.take(options.repetitions);
  Result result = empty_result(options, graphs.size());
  Plot& plot = result.plots.front();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t function = 2 * i, lazy = function + 1;
    result.table.add({static_cast<double>(options.hidden[i]), turns.median(function), turns.median(lazy),
                      100 * turns.ratio(lazy, function), all[i]->share_by_cpu(), all[i]->nodes(),
                      all[i]->recording_ns(), all[i]->lowering_ns()});
    plot.places.push_back(std::to_string(options.hidden[i]));
    plot.series[0].values.push_back(turns.median(function));
    plot.series[1].values.push_back(turns.median(lazy));
  }
  return result;
}

}  // namespace windrow::perf
