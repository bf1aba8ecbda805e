// Compares an exported Tree-LSTM with the library, in one process: bits, and trees per second, in turn.
//
//   exported_tree_lstm RUN WEIGHTS WORKERS BATCH TREES ROUNDS
//
// Compiled by scripts/exported together with the model.cc that windrow export has printed from RUN.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "model.h"
#include "windrow/models/graph_network.h"
#include "windrow/models/saved_model.h"
#include "windrow/models/trainer.h"
#include "windrow/models/treebank.h"

namespace {

using namespace windrow;

std::size_t number_of(const char* text) {
  const long number = std::atol(text);
  if (number < 1) throw std::invalid_argument(std::string(text) + "; expected a number above 0");
  return static_cast<std::size_t>(number);
}

/// Minibatches of both.
struct Trees {
  std::vector<std::vector<InputGraph>> of_library;
  std::vector<std::vector<tree_lstm::Graph>> exported;
  std::size_t count;
};

Trees make_trees(const Workload& workload, const VertexFunction& function, std::size_t batch, std::size_t count) {
  std::istringstream text(generate_treebank(count, 77));
  const Vocabulary words(workload.vocabularies.at("words"));
  Trees trees{.of_library = {}, .exported = {}, .count = count};
  for (const LabelledTree& tree : read_treebank(text, "trees")) {
    const GraphData data = numbered(tree, words);
    if (trees.exported.empty() || trees.exported.back().size() == batch) {
      trees.of_library.emplace_back();
      trees.exported.emplace_back();
    }
    trees.of_library.back().emplace_back(function, data);
    trees.exported.back().push_back({data.child_begin, data.children, data.indices.at("word")});
  }
  return trees;
}

/// One minibatch is in flight while the results of the one before it are read, as in windrow eval.
std::vector<float> run_library(Runner& runner, const Trees& trees) {
  std::vector<float> logits;
  std::optional<Minibatch> last;
  const auto take = [&] {
    if (!last) return;
    const std::vector<float> more = last->output("logits").get();
    logits.insert(logits.end(), more.begin(), more.end());
  };
  for (const std::vector<InputGraph>& minibatch : trees.of_library) {
    std::vector<const InputGraph*> graphs;
    for (const InputGraph& graph : minibatch) graphs.push_back(&graph);
    Minibatch running = runner.run(graphs);
    take();
    last = running;
  }
  take();
  return logits;
}

std::vector<float> run_exported(tree_lstm::Predictor& predictor, const Trees& trees) {
  std::vector<float> logits;
  for (const auto& minibatch : trees.exported) {
    const std::vector<float> more = predictor.run(minibatch).logits;
    logits.insert(logits.end(), more.begin(), more.end());
  }
  return logits;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void run(char** given) {
  const std::size_t workers = number_of(given[3]), batch = number_of(given[4]), count = number_of(given[5]),
                    rounds = number_of(given[6]);
  Engine engine({.workers = static_cast<int>(workers)});
  const Device host = host_device(engine);
  const SavedCheckpoint checkpoint = std::move(CheckpointFolder(given[1]).newest().checkpoint.value());
  const Workload workload = load_model(host, given[1]);
  const VertexFunction function = dynamic_cast<GraphNetwork&>(*workload.network).function();
  Runner runner(host, function, *workload.parameters);
  runner.see(saved_vertex_types(checkpoint));
  tree_lstm::Predictor predictor(given[2], static_cast<int>(workers));
  const Trees trees = make_trees(workload, function, batch, count);
  const std::vector<float> one = run_library(runner, trees), other = run_exported(predictor, trees);
  const bool same = one.size() == other.size() && std::memcmp(one.data(), other.data(), 4 * one.size()) == 0;
  if (!same) throw std::runtime_error("the exported program gives other bits than the library");
  std::vector<double> library, exported, ratios;
  for (std::size_t round = 0; round < rounds; ++round) {
    const auto rate = [&](auto compute) {
      const auto begin = std::chrono::steady_clock::now();
      compute();
      return static_cast<double>(trees.count) /
             std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    library.push_back(rate([&] { run_library(runner, trees); }));
    exported.push_back(rate([&] { run_exported(predictor, trees); }));
    ratios.push_back(exported.back() / library.back());
  }
  const auto [least, most] = std::ranges::minmax(ratios);
  std::printf(
      "{\"workers\": %zu, \"batch\": %zu, \"logits\": %zu, \"library\": %.0f, \"exported\": %.0f, "
      "\"ratio\": %.3f, \"least\": %.3f, \"most\": %.3f}\n",
      workers, batch, one.size(), median(library), median(exported), median(ratios), least, most);
}

}  // namespace

int main(int count, char** given) {
  try {
    if (count != 7) throw std::invalid_argument("expected RUN WEIGHTS WORKERS BATCH TREES ROUNDS");
    run(given);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "exported_tree_lstm: %s\n", error.what());
    return 2;
  }
}
