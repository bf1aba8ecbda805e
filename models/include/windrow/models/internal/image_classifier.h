// Classifiers of images at the level of operators: a perceptron, and a convolutional network. Their structure does not
// depend on the sample, so they need no vertex function: a Tape differentiates them, and a Static replays them. Each is
// also available as a vertex function, for programs (windrow/training/program.h).
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <functional>
#include <vector>

#include "windrow/batching/vertex_function.h"
#include "windrow/ops/apply.h"

namespace windrow {

/// Applies an operator to tensors: as Tape::apply does in training, and as windrow::apply does otherwise.
using ApplyOperator = std::function<Tensor(const Operator& op, const Operands& operands)>;

/// A value. Refers to its parameters by their tensors, so the set must outlive it.
struct ImageClassifier {
  std::vector<Parameter> parameters;
  /// The scores of the classes, n x classes, from n x (channels * height * width) pixels.
  std::function<Tensor(const ApplyOperator& apply, const Tensor& images)> logits;
  /// The same for one image, in a vertex function.
  std::function<Expr(const Expr& image)> logits_of_vertex;
  double flops;  ///< of the products of an image, forward
};

struct PerceptronSizes {
  Index pixels, hidden, classes;
};
/// Three layers with relu between them: two hidden ones of the same size, and the scores. Adds its parameters to the
/// set. Throws MisuseError if their names are taken.
ImageClassifier make_perceptron(Parameters& parameters, PerceptronSizes sizes);

struct ConvolutionalSizes {
  Index height, width;  ///< of the images, which have one channel; each at least 16
  Index filters, more_filters, hidden, classes;
};
/// Two convolutions of 5 x 5, each followed by a maximum over 2 x 2 and relu, a hidden layer with relu, and the scores.
/// After LeCun et al. 1998; the sizes of Caffe's and SINGA's examples are 20, 50 and 500. Adds its parameters to the
/// set. Throws MisuseError if their names are taken, and for images that are too small.
ImageClassifier make_convolutional(Parameters& parameters, ConvolutionalSizes sizes);

}  // namespace windrow
