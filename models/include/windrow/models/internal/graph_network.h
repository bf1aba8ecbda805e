// Networks that are vertex functions over graphs which are known in advance.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "windrow/models/workload.h"

namespace windrow {

/// A sample. A value.
struct LabelledGraph {
  InputGraph graph;
  std::size_t number = 0;        ///< the sample's, in its set
  std::int64_t label_count = 0;  ///< vertices with a label

  /// The index "label": -1 for vertices without one.
  std::vector<std::int32_t> labels() const { return graph.index("label"); }
};

/// Accumulates a score over minibatches.
class GraphScore {
 public:
  virtual ~GraphScore() = default;
  /// Requests the values that the score needs from a minibatch over these graphs, so that the device computes them
  /// before minibatches that start later. Returns a function that waits for the values and adds them; the score and the
  /// graphs must outlive it.
  virtual std::function<void()> pending(const Minibatch&, std::vector<const LabelledGraph*>) {
    return [] {};
  }
  /// `mean_loss`: per label, of all minibatches; 0 without labels.
  virtual std::vector<Metric> metrics(double mean_loss) const = 0;
};

/// An owner; must end before its parameters.
class GraphNetwork final : public Network {
 public:
  using MakeScore = std::function<std::unique_ptr<GraphScore>()>;
  /// `function` must have a loss.
  GraphNetwork(const Device& device, Parameters& parameters, VertexFunction function, MakeScore score)
      : device_(device), parameters_(parameters), function_(std::move(function)), score_(std::move(score)) {}

  /// How texts become graphs, for predict(). The function needs an output "logits".
  struct Texts {
    struct Input {
      GraphData graph;
      std::vector<std::int32_t> parts = {};  ///< vertices with labels
      /// The texts of the parts. Called only if they are wanted, because nested phrases are long in total.
      std::function<std::vector<std::string>()> texts_of_parts = {};
      std::optional<std::int32_t> whole = {};  ///< the vertex whose label is the input's
    };
    std::vector<std::string> labels;  ///< labels without a name are never predicted
    /// Throws DataError. `name` says which input the line is.
    std::function<Input(const std::string& line, const std::string& name)> read;
    /// The number of the label of each vertex of a minibatch. Null: the one with the highest logit.
    std::function<std::vector<std::int32_t>(const Minibatch&)> numbers = {};
  };

  std::unique_ptr<Learner> learner(const RunnerOptions& options) override;
  std::vector<std::string> labels() const override { return texts ? texts->labels : std::vector<std::string>(); }
  std::vector<Prediction> predict(std::span<const std::string> lines, const PredictOptions& options) override;
  std::vector<TypedGraph> typed_graphs(std::size_t minibatch) const override;
  std::int64_t fingerprint() const override;
  std::vector<std::string> sample_texts(const std::string& start, const SamplingOptions& options) override;
  VertexFunction function_for_use() const override { return function_; }

  const VertexFunction& function() const { return function_; }

  std::vector<LabelledGraph> training, validation;  ///< training set and validation set, by sample number
  std::optional<Texts> texts = {};                  ///< none if the model labels no texts
  /// predict() of models that write or score texts.
  using Write = std::function<std::vector<Prediction>(std::span<const std::string> lines, const PredictOptions&)>;
  Write write = {};
  /// sample_texts() of language models.
  using SampleTexts = std::function<std::vector<std::string>(const std::string& start, const SamplingOptions&)>;
  SampleTexts sample = {};

 private:
  class GraphLearner;
  class ValidationScore;

  const Device device_;
  Parameters& parameters_;
  const VertexFunction function_;
  const MakeScore score_;
  std::unique_ptr<Runner> for_texts_;  // made by the first predict(), for its plans
};

}  // namespace windrow
