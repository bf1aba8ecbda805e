#include "windrow/models/image_classifier.h"

#include <string>

namespace windrow {
namespace {

/// A matrix of weights and a row that is added.
struct Layer {
  Tensor weights, bias;
};

/// Weights of rows x width that add up `inputs` products for each of `outputs` results.
Layer add_weights(Parameters& parameters, ImageClassifier& to, const std::string& name, Index rows, Index width,
                  Index inputs, Index outputs) {
  const Parameter weights = parameters.add(name, rows, width, Initial::he_normal(inputs)),
                  bias = parameters.add(name + "_bias", 1, outputs, Initial::zeros());
  to.parameters.insert(to.parameters.end(), {weights, bias});
  return {parameters.value(weights), parameters.value(bias)};
}

Layer add_layer(Parameters& parameters, ImageClassifier& to, const std::string& name, Index inputs, Index outputs) {
  return add_weights(parameters, to, name, inputs, outputs, inputs, outputs);
}

Tensor linear(const ApplyOperator& apply, const Layer& layer, const Tensor& x) {
  return apply(op::add_bias, {.in = {apply(op::matmul, {.in = {x, layer.weights}}), layer.bias}});
}

/// Filters, one in a row, a number for each that is added, and where they slide.
struct Convolution {
  Layer layer;
  op::Window2d filters, maxima;

  Index outputs() const { return maxima.channels * maxima.positions(); }
  double flops() const {
    return 2 * static_cast<double>(maxima.channels) * static_cast<double>(filters.window() * filters.positions());
  }
};

Convolution add_convolution(Parameters& parameters, ImageClassifier& to, const std::string& name,
                            const op::Window2d& filters, Index count) {
  const Index window = filters.window();
  return {.layer = add_weights(parameters, to, name, count, window, window, count),
          .filters = filters,
          .maxima = {.channels = count,
                     .height = filters.positions_down(),
                     .width = filters.positions_across(),
                     .window_height = 2,
                     .window_width = 2,
                     .stride = 2}};
}

Tensor convolve(const ApplyOperator& apply, const Convolution& at, const Tensor& images) {
  const Tensor sums = apply(op::conv2d, {.in = {images, at.layer.weights}, .attributes = op::sliding(at.filters)});
  const Tensor largest = apply(op::max_pool2d, {.in = {sums}, .attributes = op::sliding(at.maxima)});
  // Adding a constant and relu commute with the maximum, and cost a quarter behind it.
  return apply(op::relu, {.in = {apply(op::add_channel_bias, {.in = {largest, at.layer.bias}})}});
}

double flops_of(std::initializer_list<Index> sizes) {
  double flops = 2;
  for (const Index size : sizes) flops *= static_cast<double>(size);
  return flops;
}

}  // namespace

ImageClassifier make_perceptron(Parameters& parameters, PerceptronSizes sizes) {
  const Index hidden = sizes.hidden;
  ImageClassifier made;
  const Layer first = add_layer(parameters, made, "first", sizes.pixels, hidden),
              second = add_layer(parameters, made, "second", hidden, hidden),
              head = add_layer(parameters, made, "head", hidden, sizes.classes);
  made.logits = [first, second, head](const ApplyOperator& apply, const Tensor& images) {
    const Tensor x = apply(op::relu, {.in = {linear(apply, first, images)}});
    const Tensor y = apply(op::relu, {.in = {linear(apply, second, x)}});
    return linear(apply, head, y);
  };
  made.flops = flops_of({sizes.pixels, hidden}) + flops_of({hidden, hidden}) + flops_of({hidden, sizes.classes});
  return made;
}

ImageClassifier make_convolutional(Parameters& parameters, ConvolutionalSizes sizes) {
  constexpr Index least = 16;
  if (sizes.height < least || sizes.width < least) {
    throw MisuseError("make_convolutional: images of " + std::to_string(sizes.height) + " x " +
                      std::to_string(sizes.width) + "; expected at least 16 x 16");
  }
  ImageClassifier made;
  const Convolution first = add_convolution(parameters, made, "first",
                                            {.channels = 1,
                                             .height = sizes.height,
                                             .width = sizes.width,
                                             .window_height = 5,
                                             .window_width = 5},
                                            sizes.filters),
                    second = add_convolution(parameters, made, "second",
                                             {.channels = sizes.filters,
                                              .height = first.maxima.positions_down(),
                                              .width = first.maxima.positions_across(),
                                              .window_height = 5,
                                              .window_width = 5},
                                             sizes.more_filters);
  const Layer hidden = add_layer(parameters, made, "hidden", second.outputs(), sizes.hidden),
              head = add_layer(parameters, made, "head", sizes.hidden, sizes.classes);
  made.logits = [first, second, hidden, head](const ApplyOperator& apply, const Tensor& images) {
    const Tensor features = convolve(apply, second, convolve(apply, first, images));
    const Tensor x = apply(op::relu, {.in = {linear(apply, hidden, features)}});
    return linear(apply, head, x);
  };
  made.flops = first.flops() + second.flops() + flops_of({second.outputs(), sizes.hidden}) +
               flops_of({sizes.hidden, sizes.classes});
  return made;
}

}  // namespace windrow
