// A graph LSTM (Peng et al. 2017): a child-sum LSTM over acyclic graphs, in which a vertex may have any number of
// children and of consumers. Each edge has a relation, which biases the input taken from the child and the child's
// forget gate.
#pragma once

#include <cstdint>

#include "windrow/batching/parameters.h"
#include "windrow/batching/vertex_function.h"

namespace windrow {

struct GraphLstmSizes {
  Index vocabulary, relations, embedding, hidden, classes;
};

/// A handle to its parameters.
///
/// Graphs have the indices "word" and "label" (-1 for a vertex without a loss), and the edge index "relation".
/// Minibatches have an output "logits"; the loss is the sum of the cross entropies of all vertices.
class GraphLstm {
 public:
  static constexpr std::size_t arity = any_arity;

  /// Adds its parameters to the set. Throws MisuseError if their names are taken.
  GraphLstm(Parameters& parameters, GraphLstmSizes sizes);

  VertexFunction function() const { return VertexFunction("graph_lstm", {.arity = arity}, *this); }

  void operator()(auto& v) const {
    const Index h = sizes_.hidden;
    const auto h_of = v.state("h", h), c_of = v.state("c", h);
    const auto word = embedding(words_, v.pull_index("word"));
    const auto relation = embedding(relations_, v.pull_edge_index("relation"));
    const auto edge = matmul(v.each(h_of), child_) + relation;
    const auto taken = tanh(slice(edge, 0, h));
    const auto keep = sigmoid(slice(edge, h, 2 * h) + matmul(word, forget_in_));
    const auto gates = matmul(word, in_) + matmul(sum_children(taken), sum_) + bias_;
    const auto in = sigmoid(slice(gates, 0, h)), out = sigmoid(slice(gates, h, 2 * h));
    const auto c = in * tanh(slice(gates, 2 * h, 3 * h)) + sum_children(keep * v.each(c_of));
    const auto own = out * tanh(c);
    v.scatter(h_of, own);
    v.scatter(c_of, c);
    const auto logits = matmul(own, head_) + head_bias_;
    v.push("logits", logits);
    v.loss(softmax_cross_entropy(logits, v.pull_index("label")));
  }

  /// Floating point operations of the forward products of a graph: 6 h e + 2 h classes per vertex, 2 h e + 6 h^2 more
  /// per vertex with children, 4 h^2 per edge (h: hidden size, e: embedding size).
  double flops(std::int64_t vertices, std::int64_t with_children, std::int64_t edges) const;

 private:
  GraphLstmSizes sizes_;
  Parameter words_, relations_, in_, sum_, bias_, child_, forget_in_, head_, head_bias_;
};

}  // namespace windrow
