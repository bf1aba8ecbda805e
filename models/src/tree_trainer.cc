// Training and evaluation of trees. Start here; the others read trees, or make them.
#include "windrow/models/tree_trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>

namespace windrow {
namespace {

TreeTrainerOptions checked(TreeTrainerOptions options) {
  constexpr Index most = 1 << 24;
  const auto refuse = [](const std::string& what) { throw MisuseError("tree trainer: " + what); };
  const auto check = [&](const char* name, Index value) {
    if (value >= 1 && value <= most) return;
    refuse(name + (" " + std::to_string(value)) + "; expected 1 to " + std::to_string(most));
  };
  check("hidden", options.hidden);
  check("embedding", options.embedding);
  check("batch", static_cast<Index>(options.batch));
  if (!std::isfinite(options.rate) || options.rate < 0) {
    refuse("rate " + std::to_string(options.rate) + "; expected a number, 0 or more");
  }
  return options;
}

/// 0 of nothing.
double share(std::size_t part, std::size_t all) {
  return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
}

/// Sums losses, each of which is waited for when the next minibatches are under way.
class LossSum {
 public:
  void add(const Minibatch& minibatch) {
    pending_.push_back(minibatch);
    if (pending_.size() > 1) take();
  }
  /// After a failure: nobody shall hear of the others later on.
  void give_up() {
    for (const Minibatch& minibatch : pending_) {
      try {
        minibatch.loss();
      } catch (const Error&) {
      }
    }
  }
  double finish() {
    while (!pending_.empty()) take();
    return sum_;
  }

 private:
  void take() {
    sum_ += pending_.front().loss();
    pending_.pop_front();
  }

  std::deque<Minibatch> pending_;
  double sum_ = 0;
};

}  // namespace

TreeTrainer::TreeTrainer(const Device& device, const std::vector<LabelledTree>& trees, TreeTrainerOptions options)
    : device_(device),
      options_(checked(options)),
      vocabulary_(vocabulary_of(trees)),
      parameters_(device, options.seed),
      model_(parameters_, {vocabulary_.size(), options.embedding, options.hidden, tree_labels}),
      function_(model_.function()),
      trees_(prepare(trees)),
      runner_(device, function_, parameters_, {.schedule = options.schedule}),
      random_(options.seed) {
  if (trees.empty()) throw MisuseError("tree trainer: no trees; expected one or more");
  for (const InputGraph& graph : trees_.graphs_) order_.push_back(&graph);
  next_ = order_.size();
}

TreeTrainer::Trees TreeTrainer::prepare(const std::vector<LabelledTree>& trees) const {
  Trees prepared;
  prepared.graphs_.reserve(trees.size());
  for (const LabelledTree& tree : trees) {
    const std::string name = "tree " + std::to_string(prepared.graphs_.size() + 1);
    prepared.graphs_.emplace_back(function_, numbered(tree, vocabulary_), name);
    prepared.labels_.push_back(tree.graph.indices.at("label"));
  }
  return prepared;
}

std::vector<const InputGraph*> TreeTrainer::next_minibatch(std::size_t trees) {
  if (next_ == order_.size()) {
    // Not std::shuffle, which differs between libraries.
    for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random_() % i]);
    next_ = 0;
  }
  const std::size_t end = std::min(next_ + std::min(trees, options_.batch), order_.size());
  const std::vector<const InputGraph*> minibatch(&order_[next_], order_.data() + end);
  next_ = end;
  return minibatch;
}

TreeTrainer::Pass TreeTrainer::train(std::size_t trees, Batching batching) {
  if (batching == Batching::unbatched && !unbatched_) {
    unbatched_.emplace(device_, function_, parameters_, RunnerOptions{.batch_rows = 1});
  }
  Runner& runner = batching == Batching::batched ? runner_ : *unbatched_;
  const auto began = std::chrono::steady_clock::now();
  Pass pass;
  LossSum loss;
  try {
    while (pass.trees < trees) {
      const std::vector<const InputGraph*> graphs = next_minibatch(trees - pass.trees);
      const Minibatch minibatch = runner.differentiate(graphs);
      parameters_.sgd(options_.rate / static_cast<double>(graphs.size()));
      loss.add(minibatch);
      pass.trees += graphs.size();
      pass.vertices += minibatch.vertices();
    }
    pass.loss = loss.finish() / static_cast<double>(std::max<std::int64_t>(pass.vertices, 1));
  } catch (...) {
    loss.give_up();
    throw;
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) device_.engine->wait(parameters_.value(parameters_[i]).var());
  pass.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return pass;
}

TreeTrainer::Pass TreeTrainer::train() {
  next_ = order_.size();
  return train(order_.size());
}

TreeAccuracy TreeTrainer::evaluate(const Trees& trees) {
  std::size_t labels = 0, right = 0, roots = 0, right_roots = 0;
  for (std::size_t begin = 0; begin < trees.graphs_.size(); begin += options_.batch) {
    const std::size_t end = std::min(begin + options_.batch, trees.graphs_.size());
    std::vector<const InputGraph*> graphs;
    for (std::size_t i = begin; i < end; ++i) graphs.push_back(&trees.graphs_[i]);
    const std::vector<float> logits = runner_.run(graphs).output("logits").get();
    const float* scores = logits.data();
    for (std::size_t i = begin; i < end; ++i) {
      bool hit = false, labelled = false;
      for (std::int32_t label : trees.labels_[i]) {
        hit = std::max_element(scores, scores + tree_labels) - scores == label;
        labelled = label >= 0;
        labels += labelled;
        right += hit;
        scores += tree_labels;
      }
      roots += labelled;  // the root is the last
      right_roots += hit;
    }
  }
  return {share(right_roots, roots), share(right, labels)};
}

RunnerStats TreeTrainer::stats(Batching batching) const {
  if (batching == Batching::batched) return runner_.stats();
  return unbatched_ ? unbatched_->stats() : RunnerStats{};
}

double TreeTrainer::flops_a_tree() const {
  std::int64_t vertices = 0;
  for (const InputGraph& graph : trees_.graphs_) vertices += graph.vertices();
  const auto trees = static_cast<std::int64_t>(trees_.graphs_.size());
  // One leaf more than inner vertices in each.
  return model_.flops((vertices + trees) / 2, (vertices - trees) / 2) / static_cast<double>(trees);
}

}  // namespace windrow
