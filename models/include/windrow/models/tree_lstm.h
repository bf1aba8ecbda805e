// The binary Tree-LSTM as a vertex function, which is where to see how a model is written.
//
// A leaf's gates see its word, an inner vertex's gates see both children, and each forget gate its own child; a
// classifier at every vertex. After Tai, Socher and Manning 2015, whose forget gates see both children; so built it is
// the cell that benchmarks of dynamic batching train.
#pragma once

#include <cstdint>

#include "windrow/batching/parameters.h"
#include "windrow/batching/vertex_function.h"

namespace windrow {

struct TreeLstmSizes {
  Index vocabulary, embedding, hidden, classes;
};

/// A handle to its parameters.
///
/// Graphs for it have, as indices, "word", -1 for none, and "label", -1 for a vertex that is not to be learned. Its
/// minibatches have an output "logits" of width `classes`, and as loss the cross entropy over all vertices.
class TreeLstm {
 public:
  static constexpr std::size_t arity = 2;

  /// Adds its parameters to the set. Throws MisuseError if their names are taken, as by another TreeLstm.
  TreeLstm(Parameters& parameters, TreeLstmSizes sizes)
      : sizes_(sizes),
        words_(parameters.add("words", sizes.vocabulary, sizes.embedding, Initial::uniform(-0.1f, 0.1f))),
        leaf_(parameters.add_product("leaf", sizes.embedding, 3 * sizes.hidden)),
        inner_(parameters.add_product("inner", 2 * sizes.hidden, 3 * sizes.hidden)),
        bias_(parameters.add("bias", 1, 3 * sizes.hidden, Initial::zeros())),
        forget_(parameters.add_product("forget", sizes.hidden, sizes.hidden)),
        forget_bias_(parameters.add("forget_bias", 1, sizes.hidden, Initial::constant(1))),
        head_(parameters.add_product("head", sizes.hidden, sizes.classes)),
        head_bias_(parameters.add("head_bias", 1, sizes.classes, Initial::zeros())) {}

  VertexFunction function() const { return VertexFunction("tree_lstm", {.arity = arity}, *this); }

  /// What one vertex computes. A template so that other evaluators can run it, such as the oracle of the tests.
  void operator()(auto& v) const {
    const Index h = sizes_.hidden;
    const auto h_of = v.state("h", h), c_of = v.state("c", h);
    const auto left = v.gather(0, h_of), right = v.gather(1, h_of);
    const auto word = embedding(words_, v.pull_index("word", Presence::sometimes));
    const auto gates = matmul(word, leaf_) + matmul(concat(left, right), inner_) + bias_;
    const auto keep_left = sigmoid(matmul(left, forget_) + forget_bias_);
    const auto keep_right = sigmoid(matmul(right, forget_) + forget_bias_);
    const auto in = sigmoid(slice(gates, 0, h)), out = sigmoid(slice(gates, h, 2 * h));
    const auto c =
        in * tanh(slice(gates, 2 * h, 3 * h)) + keep_left * v.gather(0, c_of) + keep_right * v.gather(1, c_of);
    const auto own = out * tanh(c);
    v.scatter(h_of, own);
    v.scatter(c_of, c);
    const auto logits = matmul(own, head_) + head_bias_;
    v.push("logits", logits);
    v.loss(softmax_cross_entropy(logits, v.pull_index("label")));
  }

  /// Floating point operations of the products that a tree needs, forward: 6 h e a leaf, 16 h^2 an inner vertex, 2 h
  /// classes each. Training needs three times that.
  double flops(std::int64_t leaves, std::int64_t inner) const;

 private:
  TreeLstmSizes sizes_;
  Parameter words_, leaf_, inner_, bias_, forget_, forget_bias_, head_, head_bias_;
};

}  // namespace windrow
