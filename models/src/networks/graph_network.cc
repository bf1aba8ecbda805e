#include "windrow/models/graph_network.h"

#include <optional>
#include <utility>

namespace windrow {

class GraphNetwork::ValidationScore final : public Score {
 public:
  ValidationScore(Runner& runner, const std::vector<LabelledGraph>& validation, std::unique_ptr<GraphScore> score)
      : runner_(runner), samples_(validation), score_(std::move(score)) {}

  /// Starts a minibatch, then scores the previous one: so one minibatch is always in flight.
  void add(SampleNumbers numbers) override {
    std::vector<const LabelledGraph*> labelled;
    std::vector<const InputGraph*> graphs;
    for (const std::size_t number : numbers) {
      labelled.push_back(&samples_[number]);
      graphs.push_back(&samples_[number].graph);
    }
    finish(std::exchange(last_, Running{std::move(labelled), runner_.run(graphs)}));
  }
  std::vector<Metric> metrics() override {
    finish(std::exchange(last_, std::nullopt));
    return score_->metrics();
  }

 private:
  struct Running {
    std::vector<const LabelledGraph*> graphs;
    Minibatch minibatch;
  };
  void finish(const std::optional<Running>& running) {
    if (running) score_->add(running->minibatch, running->graphs);
  }

  Runner& runner_;
  const std::vector<LabelledGraph>& samples_;
  const std::unique_ptr<GraphScore> score_;
  std::optional<Running> last_;
};

class GraphNetwork::GraphLearner final : public Learner {
 public:
  GraphLearner(GraphNetwork& network, const RunnerOptions& options)
      : network_(network), runner_(network.device_, network.function_, network.parameters_, options) {}

  Loss differentiate(SampleNumbers numbers) override {
    std::vector<const InputGraph*> graphs;
    for (const std::size_t number : numbers) graphs.push_back(&network_.training[number].graph);
    const Minibatch minibatch = runner_.differentiate(graphs);
    return [minibatch] { return minibatch.loss(); };
  }
  std::unique_ptr<Score> score() override {
    return std::make_unique<ValidationScore>(runner_, network_.validation, network_.score_());
  }
  RunnerStats stats() const override { return runner_.stats(); }
  std::vector<std::int64_t> history() const override { return runner_.history(); }
  void set_history(std::span<const std::int64_t> history) override { runner_.set_history(history); }

 private:
  GraphNetwork& network_;
  Runner runner_;
};

std::unique_ptr<Learner> GraphNetwork::learner(const RunnerOptions& options) {
  return std::make_unique<GraphLearner>(*this, options);
}

std::vector<TypedGraph> GraphNetwork::typed_graphs(std::size_t minibatch) const {
  std::vector<const InputGraph*> graphs;
  for (const LabelledGraph& one : training) graphs.push_back(&one.graph);
  return windrow::typed_graphs(graphs, minibatch);
}

}  // namespace windrow
