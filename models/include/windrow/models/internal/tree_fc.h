// Tree-FC: a tanh layer over both children at each inner vertex, on complete binary trees. A benchmark of Looks et al.
// 2017 (TensorFlow Fold) in which matrix products take almost all the time.
#pragma once
#include "windrow/engine/internal/requirements.h"

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

  /// A function of the three kinds in Kind.
  VertexFunction function() const;
  /// A complete binary tree with a leaf for each word, at least two; `label` is the class of the root.
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

  /// Floating point operations of the forward products of a tree: 4 h^2 per inner vertex, and 2 h classes at the root
  /// (h: hidden size).
  double flops(std::int64_t leaves) const;

 private:
  TreeFcSizes sizes_;
  Parameter words_, pair_, bias_, head_, head_bias_;
};

}  // namespace windrow
