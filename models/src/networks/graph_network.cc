#include "windrow/models/internal/graph_network.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "training/splits.h"
#include "windrow/ops/apply.h"

namespace windrow {

class GraphNetwork::ValidationScore final : public Score {
 public:
  ValidationScore(Runner& runner, const std::vector<LabelledGraph>& validation, std::unique_ptr<GraphScore> score,
                  bool on_host)
      : runner_(runner), samples_(validation), score_(std::move(score)), depth_(on_host ? on_hosts : on_devices) {}

  /// Keeps some minibatches in flight, and on a device has the next ones laid out meanwhile.
  void add(SampleNumbers numbers) override {
    waiting_.emplace_back();
    for (const std::size_t number : numbers) waiting_.back().push_back(&samples_[number]);
    // A single minibatch starts sooner if it is laid out when it starts.
    if (depth_.prepared > 0 && waiting_.size() > 1) runner_.prepare(graphs_of(waiting_.back()), Runner::Call::run);
    while (waiting_.size() > depth_.prepared) start();
  }
  std::vector<Metric> metrics() override {
    while (!waiting_.empty()) start();
    while (!running_.empty()) finish();
    return score_->metrics(loss().value_or(0));
  }
  std::optional<double> loss() const override {
    if (labels_ == 0) return {};
    return loss_ / static_cast<double>(labels_);
  }

 private:
  struct Running {
    std::function<void()> score;
    std::function<double()> loss;
    std::int64_t labels = 0;
  };
  /// The most minibatches that are laid out ahead, and that wait for their scores. On the host, threads that lay out
  /// minibatches would lack in the computation, and more minibatches would take more memory.
  struct Depth {
    std::size_t prepared, running;
  };
  static constexpr Depth on_hosts = {0, 1}, on_devices = {2, 3};

  static std::vector<const InputGraph*> graphs_of(const std::vector<const LabelledGraph*>& labelled) {
    std::vector<const InputGraph*> graphs;
    for (const LabelledGraph* one : labelled) graphs.push_back(&one->graph);
    return graphs;
  }
  /// Starts a minibatch, and requests the values that its score needs, before the next one is started.
  void start() {
    const std::vector<const LabelledGraph*> labelled = std::move(waiting_.front());
    waiting_.pop_front();
    const Minibatch minibatch = runner_.run(graphs_of(labelled));
    running_.push_back({.score = score_->pending(minibatch, labelled), .loss = minibatch.pending_loss()});
    for (const LabelledGraph* graph : labelled) running_.back().labels += graph->label_count;
    while (running_.size() > depth_.running) finish();
  }
  void finish() {
    const Running running = std::move(running_.front());
    running_.pop_front();
    running.score();
    loss_ += running.loss();
    labels_ += running.labels;
  }

  Runner& runner_;
  const std::vector<LabelledGraph>& samples_;
  const std::unique_ptr<GraphScore> score_;
  const Depth depth_;
  std::deque<std::vector<const LabelledGraph*>> waiting_;
  std::deque<Running> running_;
  double loss_ = 0;
  std::int64_t labels_ = 0;
};

class GraphNetwork::GraphLearner final : public Learner {
 public:
  GraphLearner(GraphNetwork& network, const RunnerOptions& options)
      : network_(network), runner_(network.device_, network.function_, network.parameters_, options) {}

  Loss differentiate(SampleNumbers numbers) override {
    return runner_.differentiate(graphs_of(numbers)).pending_loss();
  }
  /// On the host, threads that lay out minibatches would lack in the computation.
  void prepare(SampleNumbers numbers) override {
    if (!network_.device_.on_host()) runner_.prepare(graphs_of(numbers));
  }
  std::unique_ptr<Score> score() override {
    return std::make_unique<ValidationScore>(runner_, network_.validation, network_.score_(),
                                             network_.device_.on_host());
  }
  RunnerStats stats() const override { return runner_.stats(); }
  GroupedMinibatch grouped(SampleNumbers numbers) override { return runner_.grouped(graphs_of(numbers)); }
  void forget() override { runner_.forget(); }

 private:
  std::vector<const InputGraph*> graphs_of(SampleNumbers numbers) const {
    std::vector<const InputGraph*> graphs;
    for (const std::size_t number : numbers) graphs.push_back(&network_.training[number].graph);
    return graphs;
  }

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

std::int64_t GraphNetwork::fingerprint() const {
  std::string all;
  for (const auto* samples : {&training, &validation}) {
    all += std::to_string(samples->size()) + ' ';
    for (const LabelledGraph& one : *samples) add_fingerprint(all, one.graph.bytes());
  }
  return windrow::fingerprint(all);
}

std::vector<std::string> GraphNetwork::sample_texts(const std::string& start, const SamplingOptions& options) {
  return sample ? sample(start, options) : Network::sample_texts(start, options);
}

namespace {

/// Labels without a name get no probability.
Prediction::Label label_of(const float* probabilities, const std::vector<std::string>& names) {
  std::vector<double> named(probabilities, probabilities + names.size());
  double unnamed = 0;
  for (std::size_t i = 0; i < names.size(); ++i) unnamed += names[i].empty() ? std::exchange(named[i], 0) : 0;
  if (unnamed > 0 && unnamed < 1) {
    for (double& probability : named) probability /= 1 - unnamed;
  }
  const auto best = std::ranges::max_element(named) - named.begin();
  return {static_cast<std::size_t>(best), std::move(named)};
}

}  // namespace

std::vector<Prediction> GraphNetwork::predict(std::span<const std::string> lines, const PredictOptions& options) {
  if (write) return write(lines, options);
  if (!texts) return Network::predict(lines, options);
  refuse_beam(options);
  std::vector<Texts::Input> inputs;
  std::vector<InputGraph> graphs;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string name = "input " + std::to_string(options.first + i);
    inputs.push_back(texts->read(lines[i], name));
    graphs.emplace_back(function_, inputs.back().graph, name);
  }
  std::vector<const InputGraph*> pointers;
  for (const InputGraph& graph : graphs) pointers.push_back(&graph);
  if (!for_texts_) for_texts_ = std::make_unique<Runner>(device_, function_, parameters_);
  const Minibatch minibatch = for_texts_->run(pointers);
  const Tensor logits = minibatch.output("logits");
  const std::vector<float> probabilities = apply(device_, op::softmax, {.in = {logits}}).get();
  const std::vector<std::int32_t> numbers = texts->numbers ? texts->numbers(minibatch) : std::vector<std::int32_t>();
  const auto classes = static_cast<std::size_t>(logits.width());
  std::size_t first_vertex = 0;  // of the graph
  std::vector<Prediction> predictions;
  const float* first = probabilities.data();  // of the graph
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Prediction& prediction = predictions.emplace_back();
    const auto of = [&](std::int32_t vertex) {
      const auto v = static_cast<std::size_t>(vertex);
      Prediction::Label label = label_of(first + v * classes, texts->labels);
      if (!numbers.empty()) label.number = static_cast<std::size_t>(numbers[first_vertex + v]);
      return label;
    };
    if (options.parts || !inputs[i].whole) {
      std::vector<std::string> texts_of_parts = inputs[i].texts_of_parts();
      for (std::size_t part = 0; part < texts_of_parts.size(); ++part) {
        prediction.parts.push_back({std::move(texts_of_parts[part]), of(inputs[i].parts[part])});
      }
    }
    if (inputs[i].whole) prediction.label = of(*inputs[i].whole);
    first += static_cast<std::size_t>(graphs[i].vertices()) * classes;
    first_vertex += static_cast<std::size_t>(graphs[i].vertices());
  }
  return predictions;
}

}  // namespace windrow
