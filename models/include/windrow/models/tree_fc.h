// Tree-FC: a tanh layer over both children at each inner vertex, after Looks et al. 2017 (TensorFlow Fold), whose
// benchmark it is: complete binary trees, in which all that costs time is products.
#pragma once

#include <cstdint>
#include <vector>

#include "windrow/batching/graph.h"
#include "windrow/batching/parameters.h"
#include "windrow/batching/vertex_function.h"

namespace windrow {

struct TreeFcSizes {
  Index vocabulary, hidden, classes;
};

/// A handle to its parameters. The root has an output "logits" and a loss.
class TreeFc {
 public:
  enum Kind : std::int32_t { leaf, inner, root };

  /// Adds its parameters to the set. Throws MisuseError if their names are taken.
  TreeFc(Parameters& parameters, TreeFcSizes sizes);

  VertexFunction function() const;
  /// A complete tree of so many leaves, two or more, with these words; the class of the root is its label.
  static GraphData graph(const std::vector<std::int32_t>& words, std::int32_t label);

  void operator()(auto& v, std::size_t kind) const {
    const auto h = v.state("h", sizes_.hidden);
    if (kind == leaf) return v.scatter(h, embedding(words_, v.pull_index("word")));
    const auto own = tanh(matmul(concat(v.gather(0, h), v.gather(1, h)), pair_) + bias_);
    if (kind == inner) return v.scatter(h, own);
    const auto logits = matmul(own, head_) + head_bias_;
    v.push("logits", logits);
    v.loss(softmax_cross_entropy(logits, v.pull_index("label")));
  }

  /// Floating point operations of the products that a tree of so many leaves needs, forward: 4 h^2 an inner vertex, and
  /// at the root 2 h classes.
  double flops(std::int64_t leaves) const;

 private:
  TreeFcSizes sizes_;
  Parameter words_, pair_, bias_, head_, head_bias_;
};

}  // namespace windrow
