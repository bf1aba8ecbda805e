// A Tree-LSTM as lazy expressions compared with its vertex function: the cost of recording a graph and of finding its
// vertices again for each minibatch, written as a cell, as a cell and a list, and operation by operation.
#include <array>
#include <chrono>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <functional>
#include <sstream>

#include "batching/interleaved_runs.h"
#include "batching/tables.h"
#include "windrow/batching/lazy_cell.h"
#include "windrow/batching/runner.h"
#include "windrow/models/datasets.h"
#include "windrow/models/tree_lstm.h"

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

/// The cell of tree_lstm.h, written operation by operation or as a cell of lazy expressions, with the same parameters.
/// Or another cell reads a list of all states of the tree as well. It adds a loss of 0, so losses are the same.
class WrittenTreeLstm {
 public:
  enum class As { operations, cell, cell_and_list };

  WrittenTreeLstm(const Parameters& parameters, Index hidden, LazyGraph& graph, As as)
      : as_(as),
        hidden_(hidden),
        words_(parameters.find("words")),
        leaf_(parameters.find("leaf")),
        inner_(parameters.find("inner")),
        bias_(parameters.find("bias")),
        forget_(parameters.find("forget")),
        forget_bias_(parameters.find("forget_bias")),
        head_(parameters.find("head")),
        head_bias_(parameters.find("head_bias")),
        cell_(graph.cell("tree", [this](CellBody& cell) { compute(cell); })),
        reader_(graph.cell("reader", [hidden](CellBody& cell) {
          const Expr h = cell.each(hidden), c = cell.each(hidden);
          cell.result(0.0 * row_sum(sum_children(h * tanh(c))));
        })) {}

  /// Records a tree, and appends the losses of all its vertices to `losses`.
  void record(LazyGraph& graph, const Walked& tree, std::vector<LazyExpr>& losses) const {
    std::vector<LazyExpr> states;
    visit(graph, tree, tree.root(), losses, states);
    if (as_ == As::cell_and_list) losses.push_back(reader_({}, {}, states));
  }

 private:
  struct State {
    LazyExpr h, c;
  };

  State visit(LazyGraph& graph, const Walked& tree, std::int32_t vertex, std::vector<LazyExpr>& losses,
              std::vector<LazyExpr>& states) const {
    const auto v = static_cast<std::size_t>(vertex);
    const auto child = static_cast<std::size_t>(tree.graph.child_begin[v]);
    if (as_ != As::operations) {
      State left, right;
      if (tree.words[v] < 0) {
        left = visit(graph, tree, tree.graph.children[child], losses, states);
        right = visit(graph, tree, tree.graph.children[child + 1], losses, states);
      }
      auto [h, c, loss] =
          cell_.call<3>({left.h, left.c, right.h, right.c}, {graph.index(tree.words[v]), graph.index(tree.labels[v])});
      losses.push_back(std::move(loss));
      if (as_ == As::cell_and_list) states.insert(states.end(), {h, c});
      return {std::move(h), std::move(c)};
    }
    State state = tree.words[v] >= 0 ? leaf(graph, tree.words[v])
                                     : inner(visit(graph, tree, tree.graph.children[child], losses, states),
                                             visit(graph, tree, tree.graph.children[child + 1], losses, states));
    losses.push_back(softmax_cross_entropy(affine(state.h, head_, head_bias_), graph.index(tree.labels[v])));
    return state;
  }
  void compute(CellBody& cell) const {
    const Expr left = cell.operand(hidden_), left_c = cell.operand(hidden_);
    const Expr right = cell.operand(hidden_), right_c = cell.operand(hidden_);
    const Expr word = embedding(words_, cell.index(Presence::sometimes));
    const Expr gates = matmul(word, leaf_) + matmul(concat(left, right), inner_) + bias_;
    const auto gate = [&](Index number) { return slice(gates, number * hidden_, (number + 1) * hidden_); };
    const auto keep = [&](const Expr& h) { return sigmoid(matmul(h, forget_) + forget_bias_); };
    const Expr c = sigmoid(gate(0)) * tanh(gate(2)) + keep(left) * left_c + keep(right) * right_c;
    const Expr h = sigmoid(gate(1)) * tanh(c);
    cell.result(h);
    cell.result(c);
    cell.result(softmax_cross_entropy(matmul(h, head_) + head_bias_, cell.index()));
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

  const As as_;
  const Index hidden_;
  const Parameter words_, leaf_, inner_, bias_, forget_, forget_bias_, head_, head_bias_;
  const LazyCell cell_, reader_;
};

/// Lazy expressions that are written in one way, and what they took.
struct Written {
  const std::string as;
  LazyGraph graph;
  const WrittenTreeLstm model;
  double nodes = 0;  ///< per tree
  std::vector<double> recording_ns = {}, lowering_ns = {}, cpu = {};

  Written(const Device& device, Parameters& parameters, Index hidden, std::string called, WrittenTreeLstm::As written)
      : as(std::move(called)), graph(device, parameters), model(parameters, hidden, graph, written) {}
};

/// The vertex function and the lazy expressions, with the same trees and parameters.
class BothWays {
 public:
  BothWays(const TableOptions& options, int workers, Index hidden, const std::vector<GraphData>& trees,
           Index vocabulary)
      : engine_({.workers = workers}),
        parameters_(device_, options.workload.seed),
        function_(TreeLstm(parameters_, {vocabulary, hidden, hidden, tree_labels}).function()),
        runner_(device_, function_, parameters_),
        cell_(device_, parameters_, hidden, "cell", WrittenTreeLstm::As::cell),
        cell_and_list_(device_, parameters_, hidden, "cell and list", WrittenTreeLstm::As::cell_and_list),
        operations_(device_, parameters_, hidden, "operations", WrittenTreeLstm::As::operations),
        batch_(static_cast<std::size_t>(options.batches.front())) {
    for (const GraphData& tree : trees) {
      graphs_.emplace_back(function_, tree);
      walked_.emplace_back(tree);
    }
  }

  std::array<Written*, 3> all_written() { return {&cell_, &cell_and_list_, &operations_}; }

  /// Throws Error unless all variants compute the same losses, up to rounding.
  void compare_losses() {
    for (Written* written : all_written()) {
      double found = 0, lazy = 0;
      std::vector<double> unused;
      by_minibatch(unused, [&](std::size_t begin, std::size_t end) {
        found += runner_.differentiate(pointers(begin, end)).loss();
        const std::vector<LazyExpr> losses = record(*written, begin, end);
        lazy += sum(losses).scalar();
        written->graph.clear();
      });
      if (std::abs(found - lazy) <= 1e-3 * std::abs(found)) continue;
      throw Error("lazy: the losses of the vertex function sum to " + std::to_string(found) +
                  ", those of the lazy expressions to " + std::to_string(lazy) + "; expected equal sums");
    }
  }

  /// Each runs one turn and returns trees per second.
  double by_function() {
    return by_minibatch(function_cpu_, [&](std::size_t begin, std::size_t end) {
      runner_.differentiate(pointers(begin, end));
      parameters_.sgd(0);
    });
  }
  double by_expressions(Written& written) {
    const LazyStats before = written.graph.stats();
    double recording = 0;
    const double speed = by_minibatch(written.cpu, [&](std::size_t begin, std::size_t end) {
      const Clock::time_point began = Clock::now();
      const std::vector<LazyExpr> losses = record(written, begin, end);
      recording += seconds_since(began);
      written.graph.backward(losses);
      parameters_.sgd(0);
      written.graph.clear();
    });
    const LazyStats after = written.graph.stats();
    const auto nodes = static_cast<double>(after.expressions - before.expressions);
    written.nodes = nodes / static_cast<double>(graphs_.size());
    written.recording_ns.push_back(1e9 * recording / nodes);
    written.lowering_ns.push_back(static_cast<double>(after.lower_ns - before.lower_ns) / nodes);
    return speed;
  }

  /// The speed of lazy expressions by CPU time, in percent of that of the vertex function.
  double share_by_cpu(const Written& written) const { return 100 * median_of(function_cpu_) / median_of(written.cpu); }

 private:
  std::vector<const InputGraph*> pointers(std::size_t begin, std::size_t end) const {
    std::vector<const InputGraph*> some;
    for (std::size_t i = begin; i < end; ++i) some.push_back(&graphs_[i]);
    return some;
  }
  std::vector<LazyExpr> record(Written& written, std::size_t begin, std::size_t end) const {
    std::vector<LazyExpr> losses;
    for (std::size_t i = begin; i < end; ++i) written.model.record(written.graph, walked_[i], losses);
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
  Written cell_, cell_and_list_, operations_;
  const std::size_t batch_;
  std::vector<InputGraph> graphs_;
  std::vector<Walked> walked_;
  std::vector<double> function_cpu_;
};

/// The training trees of the data folder if there is one, otherwise generated ones; at most as many as the options say.
std::vector<LabelledTree> treebank(const WorkloadOptions& options) {
  std::vector<LabelledTree> trees;
  if (options.data.empty()) {
    std::istringstream text(generate_treebank(options.samples, options.seed));
    trees = read_treebank(text, "generated");
  } else {
    trees = read_treebank(std::filesystem::path(options.data) / "train.txt");
  }
  return trees;
}

}  // namespace

Table lazy_expressions(const TableOptions& options) {
  const std::vector<LabelledTree> trees = treebank(options.workload);
  const Vocabulary words = vocabulary_of(trees, 2);
  std::vector<GraphData> graphs;
  for (std::size_t i = 0; i < std::min(trees.size(), options.workload.samples); ++i) {
    graphs.push_back(numbered(trees[i], words));
  }
  Table table(
      "Lazy expressions compared with a vertex function",
      "Training throughput of the binary Tree-LSTM in trees/s by hidden size, which is also the embedding size: as a "
      "vertex function with graphs loaded in advance, and as lazy expressions, recorded again for each minibatch, "
      "written as a cell and operation by operation; with a list, another cell also reads the states of all vertices "
      "of a tree, which the vertex function does not do. " +
          std::to_string(options.batches.front()) + " trees per minibatch, " + std::to_string(graphs.size()) +
          " trees, medians of " + std::to_string(options.repetitions) +
          " repetitions, in each of which all variants ran in turn. The thread that records comes on top of the "
          "workers: with as many workers as cores it takes time from them. CPU time is that of all threads together, "
          "including spinning. A node is one recorded expression; a call of the cell records three, and each element "
          "of the list that is copied one. Recording includes the walk over the tree; lowering finds the vertices "
          "among the nodes. All variants computed the same losses.",
      {{"workers", 0},
       {"hidden", 0},
       {"written as"},
       {"vertex function", 0},
       {"lazy", 0},
       {"lazy / vertex function", 1, " %"},
       {"lazy / vertex function (CPU time)", 1, " %"},
       {"nodes per tree", 0},
       {"recording ns per node", 0},
       {"lowering ns per node", 0}});
  std::vector<std::unique_ptr<BothWays>> all;
  InterleavedRuns runs;
  for (const int workers : options.workers) {
    for (const int hidden : options.hidden) {
      BothWays& both = *all.emplace_back(std::make_unique<BothWays>(options, workers, hidden, graphs, words.size()));
      both.compare_losses();
      runs.add([&both] { return both.by_function(); });
      for (Written* written : both.all_written()) {
        runs.add([&both, written] { return both.by_expressions(*written); });
      }
    }
  }
  runs.run(options.repetitions);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t function = 4 * i;
    const auto workers = static_cast<double>(options.workers[i / options.hidden.size()]);
    const auto hidden = static_cast<double>(options.hidden[i % options.hidden.size()]);
    std::size_t lazy = function;
    for (const Written* written : all[i]->all_written()) {
      ++lazy;
      table.add({workers, hidden, written->as, runs.median(function), runs.median(lazy),
                 100 * runs.ratio(lazy, function), all[i]->share_by_cpu(*written), written->nodes,
                 median_of(written->recording_ns), median_of(written->lowering_ns)});
    }
  }
  return table;
}

}  // namespace windrow::perf
