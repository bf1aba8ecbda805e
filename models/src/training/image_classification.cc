// Images as a workload of the classifiers of image_classifier.h, recorded or operator by operator.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>

#include "training/scores.h"
#include "training/splits.h"
#include "windrow/batching/runner.h"
#include "windrow/models/datasets.h"
#include "windrow/models/internal/image_classifier.h"
#include "windrow/ops/static.h"
#include "windrow/ops/tape.h"

namespace windrow {
namespace {

constexpr Index classes_of_digits = 10;

class ImageNetwork final : public Network {
 public:
  ImageNetwork(const Device& device, Parameters& parameters, ImageClassifier classifier, bool graph_mode)
      : device_(device), parameters_(parameters), classifier_(std::move(classifier)), graph_mode_(graph_mode) {}

  std::unique_ptr<Learner> learner(const RunnerOptions& options) override;
  std::int64_t fingerprint() const override {
    std::string all;
    for (const LabelledImages* images : {training.get(), validation.get()}) {
      all += std::to_string(images->height) + ' ' + std::to_string(images->width) + ' ';
      add_fingerprint(all, images->pixels);
      add_fingerprint(all, images->labels);
    }
    return windrow::fingerprint(all);
  }
  VertexFunction function_for_use() const override;

  /// Shared with ops that may run after the network has ended.
  using Images = std::shared_ptr<const LabelledImages>;
  Images training, validation;

 private:
  /// Tensors of a minibatch: n x pixels, from 0 to 1, and n x 1.
  StaticInputs inputs(const Images& images, SampleNumbers numbers) const;
  /// The number of the class with the highest score, n x 1.
  Tensor answers(const Tensor& images) const;

  class ImageLearner;
  class Accuracy;

  const Device device_;
  Parameters& parameters_;
  const ImageClassifier classifier_;
  const bool graph_mode_;
};

StaticInputs ImageNetwork::inputs(const Images& images, SampleNumbers numbers) const {
  const auto rows = static_cast<Index>(numbers.size());
  const Tensor pixels(device_, rows, images->height * images->width, "images");
  const IntTensor labels(device_, rows, 1, "labels");
  std::vector<std::size_t> chosen(numbers.begin(), numbers.end());
  std::vector<std::int32_t> of_chosen;
  for (const std::size_t number : chosen) of_chosen.push_back(images->labels[number]);
  pixels.fill(
      [images, chosen = std::move(chosen)](const Matrix<float>& to) {
        for (std::size_t i = 0; i < chosen.size(); ++i) {
          std::ranges::transform(images->image(chosen[i]), to.row(static_cast<Index>(i)),
                                 [](std::uint8_t pixel) { return static_cast<float>(pixel) / 255; });
        }
      },
      {}, {.name = "images"});
  labels.set(std::move(of_chosen));
  return {.in = {pixels}, .indices = {labels}};
}

/// The share of images whose class has the highest score.
class ImageNetwork::Accuracy final : public Score {
 public:
  explicit Accuracy(const ImageNetwork& network) : network_(network) {}

  void add(SampleNumbers numbers) override {
    const std::vector<float> answers = network_.answers(network_.inputs(network_.validation, numbers).in.at(0)).get();
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      counted_.add(network_.validation->labels[numbers[i]], static_cast<std::int32_t>(answers[i]));
    }
  }
  std::vector<Metric> metrics() override { return {{"accuracy", counted_.share()}}; }

 private:
  const ImageNetwork& network_;
  AnswerCount counted_;
};

class ImageNetwork::ImageLearner final : public Learner {
 public:
  /// With `one_by_one`, computes each image alone, and records nothing.
  ImageLearner(const ImageNetwork& network, bool one_by_one) : network_(network), one_by_one_(one_by_one) {
    if (!network.graph_mode_ || one_by_one) return;
    // The ops of a device run one after the other anyway, and can be issued together.
    const auto order = network.device_.on_host() ? StaticOptions::Order::parallel : StaticOptions::Order::serial;
    recorded_.emplace(
        network.device_, [this](const StaticInputs& inputs) { return differentiated(inputs); },
        StaticOptions{.order = order});
  }

  Loss differentiate(SampleNumbers numbers) override {
    network_.parameters_.begin_minibatch();
    std::vector<Tensor> losses;
    const std::size_t each = one_by_one_ ? 1 : std::max<std::size_t>(numbers.size(), 1);
    for (std::size_t begin = 0; begin < numbers.size(); begin += each) {
      losses.push_back(differentiate_part(numbers.subspan(begin, each)));
    }
    ++minibatches_;
    images_ += static_cast<std::int64_t>(numbers.size());
    return [losses = std::move(losses)] {
      double sum = 0;
      for (const Tensor& loss : losses) sum += loss.get().at(0);
      if (!std::isfinite(sum)) throw NotFiniteError("the loss of a minibatch is not finite");
      return sum;
    };
  }
  std::unique_ptr<Score> score() override { return std::make_unique<Accuracy>(network_); }
  RunnerStats stats() const override {
    return {.minibatches = minibatches_,
            .vertices = images_,
            .ops = recorded_ ? minibatches_ * static_cast<std::int64_t>(recorded_->stats().ops) : 0,
            .peak_bytes = static_cast<std::int64_t>(peak_bytes_)};
  }

 private:
  /// The loss, and the gradients of the parameters.
  std::vector<Tensor> differentiated(const StaticInputs& inputs) const {
    Tape tape(network_.device_);
    const ImageClassifier& classifier = network_.classifier_;
    for (const Parameter& parameter : classifier.parameters) tape.watch(network_.parameters_.value(parameter));
    const ApplyOperator apply_op = [&](const Operator& op, const Operands& operands) {
      return tape.apply(op, operands);
    };
    const Tensor logits = classifier.logits(apply_op, inputs.in.at(0));
    const Tensor losses = tape.apply(op::softmax_cross_entropy, {.in = {logits}, .indices = {inputs.indices.at(0)}});
    const Tensor loss = tape.apply(op::column_sum, {.in = {losses}});
    tape.backward(loss);
    std::vector<Tensor> results = {loss};
    for (const Parameter& parameter : classifier.parameters) {
      results.push_back(tape.gradient(network_.parameters_.value(parameter)).value());
    }
    return results;
  }
  /// Adds to the gradients of the minibatch, and returns the loss of images that are computed together.
  Tensor differentiate_part(SampleNumbers numbers) {
    const StaticInputs inputs = network_.inputs(network_.training, numbers);
    const std::vector<Tensor> results = recorded_ ? (*recorded_)(inputs) : differentiated(inputs);
    if (recorded_) peak_bytes_ = std::max(peak_bytes_, recorded_->stats().planned_bytes);
    for (std::size_t k = 0; k < network_.classifier_.parameters.size(); ++k) {
      network_.parameters_.add_gradient(network_.classifier_.parameters[k], results.at(1 + k));
    }
    // A copy, because the next minibatch may overwrite the results before the caller has waited for this one.
    return apply(network_.device_, op::stop_gradient, {.in = {results.front()}});
  }

  const ImageNetwork& network_;
  const bool one_by_one_;
  std::optional<Static> recorded_;
  std::size_t peak_bytes_ = 0;  // of the largest recording
  std::int64_t minibatches_ = 0, images_ = 0;
};

std::unique_ptr<Learner> ImageNetwork::learner(const RunnerOptions& options) {
  return std::make_unique<ImageLearner>(*this, options.batch_rows == 1);
}

Tensor ImageNetwork::answers(const Tensor& images) const {
  const ApplyOperator apply_op = [this](const Operator& op, const Operands& operands) {
    return apply(device_, op, operands);
  };
  return apply_op(op::arg_top_k, {.in = {classifier_.logits(apply_op, images)}, .attributes = op::largest(1)});
}

VertexFunction ImageNetwork::function_for_use() const {
  return {"image classifier", {}, [&](Vertex& v) {
            const Expr image = v.pull("pixels", validation->height * validation->width);
            v.push("logits", classifier_.logits_of_vertex(image));
          }};
}

struct ImageSplit {
  LabelledImages training, validation;
  SampleSource training_source, validation_source;
};

bool has_size(const LabelledImages& images, const ImageSize& size) {
  return images.height == size.height && images.width == size.width;
}

ImageSplit images_of(const WorkloadKind& kind, const WorkloadOptions& options) {
  ImageSplit split;
  if (options.data.empty()) {
    if (!options.validation_only) split.training = generate_digits(options.samples, 2 * options.seed);
    split.validation = generate_digits(std::max<std::size_t>(options.samples / 8, 1), 2 * options.seed + 1);
    if (options.image && !has_size(split.validation, *options.image)) {  // trained on files: use a blank image
      const auto [height, width] = *options.image;
      split.validation = {height, width, std::vector<std::uint8_t>(static_cast<std::size_t>(height * width)), {0}};
    }
    return split;
  }
  const DataFiles files = files_of(kind, options);
  split.training_source.files = {files.training};
  split.validation_source.files = {files.validation};
  if (!options.validation_only) split.training = read_idx(files.training, labels_of(files.training));
  split.validation = read_idx(files.validation, labels_of(files.validation));
  if (options.image && !has_size(split.validation, *options.image)) {
    const auto text = [](Index height, Index width) { return std::to_string(height) + " x " + std::to_string(width); };
    throw DataError(files.validation.string() + ": images of " + text(split.validation.height, split.validation.width) +
                    " pixels; expected " + text(options.image->height, options.image->width) +
                    ", as in the data of the model's training");
  }
  if (options.validation_only) return split;
  if (!has_size(split.training, {split.validation.height, split.validation.width})) {
    throw DataError(files.validation.string() + ": images of another size than those of " + files.training.string() +
                    "; expected one size");
  }
  return split;
}

/// `make` makes the classifier of images of that size.
template <class Make>
Workload make_images(const WorkloadKind& kind, const Device& device, const WorkloadOptions& options,
                     const std::string& formula, Make make) {
  ImageSplit split = images_of(kind, options);
  auto parameters = std::make_unique<Parameters>(device, options.seed);
  ImageClassifier classifier = make(*parameters, split.validation);
  const Sample sample{.units = 1, .vertices = 1, .labels = 1, .flops = classifier.flops};
  auto network =
      std::make_unique<ImageNetwork>(device, *parameters, std::move(classifier), options.graph_mode.value_or(true));
  Workload workload{.kind = &kind,
                    .formula = formula,
                    .parameters = std::move(parameters),
                    .image = ImageSize{split.validation.height, split.validation.width},
                    .training = std::vector<Sample>(split.training.size(), sample),
                    .validation = std::vector<Sample>(split.validation.size(), sample),
                    .training_source = std::move(split.training_source),
                    .validation_source = std::move(split.validation_source)};
  network->training = std::make_shared<LabelledImages>(std::move(split.training));
  network->validation = std::make_shared<LabelledImages>(std::move(split.validation));
  workload.network = std::move(network);
  return workload;
}

Workload make_mlp(const WorkloadKind& kind, const Device& device, const WorkloadOptions& options) {
  return make_images(kind, device, options, "2 (pixels h + h^2 + 10 h) per image",
                     [&](Parameters& parameters, const LabelledImages& images) {
                       return make_perceptron(parameters, {.pixels = images.height * images.width,
                                                           .hidden = options.size("hidden"),
                                                           .classes = classes_of_digits});
                     });
}

Workload make_cnn(const WorkloadKind& kind, const Device& device, const WorkloadOptions& options) {
  return make_images(kind, device, options, "2 per weight and position of both convolutions, and of the two products",
                     [&](Parameters& parameters, const LabelledImages& images) {
                       return make_convolutional(parameters, {.height = images.height,
                                                              .width = images.width,
                                                              .filters = options.size("filters"),
                                                              .more_filters = options.size("more-filters"),
                                                              .hidden = options.size("hidden"),
                                                              .classes = classes_of_digits});
                     });
}

WorkloadKind kind_of_images(std::string name, std::string about, std::vector<WorkloadSize> sizes, double rate,
                            decltype(WorkloadKind::make) make) {
  return {.name = std::move(name),
          .about = std::move(about),
          .sample = "image",
          .unit = "images",
          .files = {"train-images-idx3-ubyte", "t10k-images-idx3-ubyte"},
          .other_names = {{"train-images.idx3-ubyte"}, {"t10k-images.idx3-ubyte"}},
          .sizes = std::move(sizes),
          .graphs_known = false,
          .has_graph_mode = true,
          .samples = 8192,
          .learning_rate = rate,
          .make = make};
}

}  // namespace

WorkloadKind mlp_kind() {
  return kind_of_images("mlp", "perceptron of three layers, classifies images of digits (LeCun et al. 1998)",
                        {hidden(256)}, 0.1, make_mlp);
}

WorkloadKind cnn_kind() {
  return kind_of_images("cnn", "convolutional network, classifies images of digits (LeCun et al. 1998)",
                        {{"filters", "Filters of the first convolution", 20},
                         {"more-filters", "Filters of the second convolution", 50},
                         hidden(500)},
                        0.05, make_cnn);
}

}  // namespace windrow
