#include "windrow/models/internal/image_classifier.h"

#include <optional>
#include <string>
#include <utility>

namespace windrow {
namespace {

/// A sequence of operators: each takes the result of the previous one, and perhaps a parameter.
class Chain {
 public:
  explicit Chain(Parameters& parameters) : parameters_(parameters) {}

  void add(const Operator& op, const Attributes& attributes = {}) { steps_.push_back({&op, {}, attributes}); }
  /// `inputs`: how many products are added up for each result.
  void add_weights(const Operator& op, const std::string& name, Type shape, Index inputs,
                   const Attributes& attributes = {}) {
    add(op, parameters_.add(name, shape.rows.number(), shape.width, Initial::he_normal(inputs)), attributes);
  }
  void add_bias(const Operator& op, const std::string& name, Index outputs) {
    add(op, parameters_.add(name + "_bias", 1, outputs, Initial::zeros()), {});
  }
  void add_layer(const std::string& name, Index inputs, Index outputs) {
    add_weights(op::matmul, name, {Rows::count(inputs), outputs}, inputs);
    add_bias(op::add_bias, name, outputs);
    flops_ += 2 * static_cast<double>(inputs) * static_cast<double>(outputs);
  }
  /// Adds a convolution, a maximum over 2 x 2, and relu. Returns the window of the maxima.
  op::Window2d add_convolution(const std::string& name, const op::Window2d& filters, Index count) {
    const Index window = filters.window();
    const op::Window2d maxima{.channels = count,
                              .height = filters.positions_down(),
                              .width = filters.positions_across(),
                              .window_height = 2,
                              .window_width = 2,
                              .stride = 2};
    add_weights(op::conv2d, name, {Rows::count(count), window}, window, op::sliding(filters));
    add(op::max_pool2d, op::sliding(maxima));
    add_bias(op::add_channel_bias, name,
             count);  // commutes with the maximum, as relu does; costs a quarter after it
    add(op::relu);
    flops_ += 2 * static_cast<double>(count) * static_cast<double>(window * filters.positions());
    return maxima;
  }

  ImageClassifier take() const {
    return {
        .parameters = used_,
        .logits =
            [steps = steps_](const ApplyOperator& apply, const Tensor& images) {
              Tensor x = images;
              for (const Step& step : steps) {
                const Operands operands = step.weight ? Operands{.in = {x, step.weight->value}} : Operands{.in = {x}};
                x = apply(*step.op, {.in = operands.in, .attributes = step.attributes});
              }
              return x;
            },
        .logits_of_vertex =
            [steps = steps_](const Expr& image) {
              Expr x = image;
              for (const Step& step : steps) {
                std::vector<Operand> in = {x};
                if (step.weight) in.emplace_back(step.weight->parameter);
                x = windrow::apply(*step.op, in, {}, step.attributes);
              }
              return x;
            },
        .flops = flops_};
  }

 private:
  struct Weight {
    Parameter parameter;
    Tensor value;
  };
  struct Step {
    const Operator* op;
    std::optional<Weight> weight;
    Attributes attributes;
  };

  void add(const Operator& op, const Parameter& parameter, const Attributes& attributes) {
    steps_.push_back({&op, Weight{parameter, parameters_.value(parameter)}, attributes});
    used_.push_back(parameter);
  }

  Parameters& parameters_;
  std::vector<Step> steps_;
  std::vector<Parameter> used_;
  double flops_ = 0;
};

}  // namespace

ImageClassifier make_perceptron(Parameters& parameters, PerceptronSizes sizes) {
  Chain chain(parameters);
  chain.add_layer("first", sizes.pixels, sizes.hidden);
  chain.add(op::relu);
  chain.add_layer("second", sizes.hidden, sizes.hidden);
  chain.add(op::relu);
  chain.add_layer("head", sizes.hidden, sizes.classes);
  return chain.take();
}

ImageClassifier make_convolutional(Parameters& parameters, ConvolutionalSizes sizes) {
  constexpr Index least = 16, window = 5;
  if (sizes.height < least || sizes.width < least) {
    throw MisuseError("make_convolutional: images of " + std::to_string(sizes.height) + " x " +
                      std::to_string(sizes.width) + "; expected at least 16 x 16");
  }
  Chain chain(parameters);
  const op::Window2d first = chain.add_convolution(
      "first",
      {.channels = 1, .height = sizes.height, .width = sizes.width, .window_height = window, .window_width = window},
      sizes.filters);
  const op::Window2d second = chain.add_convolution("second",
                                                    {.channels = sizes.filters,
                                                     .height = first.positions_down(),
                                                     .width = first.positions_across(),
                                                     .window_height = window,
                                                     .window_width = window},
                                                    sizes.more_filters);
  chain.add_layer("hidden", second.channels * second.positions(), sizes.hidden);
  chain.add(op::relu);
  chain.add_layer("head", sizes.hidden, sizes.classes);
  return chain.take();
}

}  // namespace windrow
