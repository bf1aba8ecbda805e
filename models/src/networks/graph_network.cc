#include "windrow/models/graph_network.h"

#include <optional>
#include <utility>

namespace windrow {

class GraphNetwork::Asking final : public Score {
 public:
  Asking(Runner& runner, const std::vector<LabelledGraph>& unseen, std::unique_ptr<GraphScore> score)
      : runner_(runner), unseen_(unseen), score_(std::move(score)) {}

  /// One minibatch is under way while the answers of the one before are looked at.
  void add(SampleNumbers numbers) override {
    std::vector<const LabelledGraph*> asked;
    std::vector<const InputGraph*> graphs;
    for (const std::size_t number : numbers) {
      asked.push_back(&unseen_[number]);
      graphs.push_back(&unseen_[number].graph);
    }
    look_at(std::exchange(last_, Asked{std::move(asked), runner_.run(graphs)}));
  }
  std::vector<Figure> figures() override {
    look_at(std::exchange(last_, std::nullopt));
    return score_->figures();
  }

 private:
  struct Asked {
    std::vector<const LabelledGraph*> graphs;
    Minibatch minibatch;
  };
  void look_at(const std::optional<Asked>& asked) {
    if (asked) score_->add(asked->minibatch, asked->graphs);
  }

  Runner& runner_;
  const std::vector<LabelledGraph>& unseen_;
  const std::unique_ptr<GraphScore> score_;
  std::optional<Asked> last_;
};

class GraphNetwork::GraphLearner final : public Learner {
 public:
  GraphLearner(GraphNetwork& network, const RunnerOptions& options)
      : network_(network), runner_(network.device_, network.function_, network.parameters_, options) {}

  Loss descend(SampleNumbers numbers, double rate) override {
    std::vector<const InputGraph*> graphs;
    for (const std::size_t number : numbers) graphs.push_back(&network_.training[number].graph);
    const Minibatch minibatch = runner_.differentiate(graphs);
    network_.parameters_.sgd(rate);
    return [minibatch] { return minibatch.loss(); };
  }
  std::unique_ptr<Score> score() override {
    return std::make_unique<Asking>(runner_, network_.unseen, network_.score_());
  }
  RunnerStats stats() const override { return runner_.stats(); }

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
