// Deep Sets (Zaheer et al. 2017) for nested lists: each list transforms its arguments, adds them up, whatever their
// number, and computes its value from the sum.
#pragma once

#include <cstdint>

#include "windrow/batching/graph.h"
#include "windrow/batching/parameters.h"
#include "windrow/batching/vertex_function.h"

namespace windrow {

struct DeepSetsSizes {
  Index symbols, hidden, classes;
};

/// A handle to its parameters. Graphs have the indices "symbol" and "label"; lists have an output "logits" and a loss.
class DeepSets {
 public:
  enum Kind : std::int32_t { digit, list };

  /// Adds its parameters to the set. Throws MisuseError if their names are taken.
  DeepSets(Parameters& parameters, DeepSetsSizes sizes);

  /// A function of the two kinds in Kind.
  VertexFunction function() const;

  void operator()(auto& v, std::size_t kind) const {
    const auto value = v.state("value", sizes_.hidden);
    const auto symbol = v.pull_index("symbol");
    if (kind == digit) return v.scatter(value, embedding(digits_, symbol));
    const auto operation = embedding(operations_, symbol);  // one half biases the arguments, the other half their sum
    const auto asked = slice(operation, 0, sizes_.hidden), asked_of_sum = slice(operation, sizes_.hidden, width());
    const auto set = sum_children(relu(matmul(v.each(value), argument_) + asked));
    const auto own = tanh(matmul(relu(matmul(set, set_) + asked_of_sum), out_));
    v.scatter(value, own);
    const auto logits = matmul(own, head_) + head_bias_;
    v.push("logits", logits);
    v.loss(softmax_cross_entropy(logits, v.pull_index("label")));
  }

  /// Floating point operations of the forward products: 2 h^2 per argument, 4 h^2 + 2 h classes per list (h: hidden
  /// size).
  double flops(std::int64_t lists, std::int64_t arguments) const;

 private:
  Index width() const { return 2 * sizes_.hidden; }

  DeepSetsSizes sizes_;
  Parameter digits_, operations_, argument_, set_, out_, head_, head_bias_;
};

}  // namespace windrow
