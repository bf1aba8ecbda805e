// The binary Tree-LSTM, for vertex functions and lazy expressions. Read it to see how a model is written.
//
// The gates of a leaf depend on its word, the gates of an inner vertex on both children, and each forget gate on its
// own child. Every vertex has a classifier. After Tai, Socher and Manning 2015, whose forget gates depend on both
// children; this variant is the one that benchmarks of dynamic batching train.
#pragma once
#include "windrow/engine/requirements.h"

#include <cstdint>
#include <string>
#include <utility>

#include "windrow/batching/parameters.h"
#include "windrow/batching/vertex_function.h"
#include "windrow/models/dropout_rates.h"

namespace windrow {

struct TreeLstmSizes {
  Index vocabulary, embedding, hidden, classes;
  DropoutRates dropout = {};  ///< of words, and of the states that the classifier reads
};

/// A handle to its parameters.
///
/// Graphs have the indices "word" (-1 for none) and "label" (-1 for a vertex without a loss). Minibatches have an
/// output "logits" of width `classes`; the loss is the sum of the cross entropies of all vertices.
class TreeLstm {
 public:
  static constexpr std::size_t arity = 2;

  /// Adds its parameters to the set; their names begin with `prefix`, as in "left ". Throws MisuseError if they are
  /// taken, as by another TreeLstm with that prefix.
  TreeLstm(Parameters& parameters, TreeLstmSizes sizes, const std::string& prefix = {})
      : sizes_(sizes),
        words_(parameters.add(prefix + "words", sizes.vocabulary, sizes.embedding, Initial::uniform(-0.1f, 0.1f))),
        leaf_(parameters.add_product(prefix + "leaf", sizes.embedding, 3 * sizes.hidden)),
        inner_(parameters.add_product(prefix + "inner", 2 * sizes.hidden, 3 * sizes.hidden)),
        bias_(parameters.add(prefix + "bias", 1, 3 * sizes.hidden, Initial::zeros())),
        forget_(parameters.add_product(prefix + "forget", sizes.hidden, sizes.hidden)),
        forget_bias_(parameters.add(prefix + "forget_bias", 1, sizes.hidden, Initial::constant(1))),
        head_(parameters.add_product(prefix + "head", sizes.hidden, sizes.classes)),
        head_bias_(parameters.add(prefix + "head_bias", 1, sizes.classes, Initial::zeros())) {}

  VertexFunction function() const { return VertexFunction("tree_lstm", {.arity = arity}, *this); }

  /// The hidden and cell states of a vertex.
  template <class Expression>
  using States = std::pair<Expression, Expression>;
  // For expressions of any kind: the embedding of a word; the states of a vertex, from its word and the states of both
  // children, zeros where it has none; the logits of a hidden state.
  auto read(const auto& word) const { return sizes_.dropout.of_word(embedding(words_, word)); }
  template <class Expression>
  States<Expression> cell(const Expression& word, const States<Expression>& left,
                          const States<Expression>& right) const {
    const Index h = sizes_.hidden;
    const Expression gates = matmul(word, leaf_) + matmul(concat(left.first, right.first), inner_) + bias_;
    const Expression keep_left = sigmoid(matmul(left.first, forget_) + forget_bias_);
    const Expression keep_right = sigmoid(matmul(right.first, forget_) + forget_bias_);
    const Expression in = sigmoid(slice(gates, 0, h)), out = sigmoid(slice(gates, h, 2 * h));
    const Expression c = in * tanh(slice(gates, 2 * h, 3 * h)) + keep_left * left.second + keep_right * right.second;
    return {out * tanh(c), c};
  }
  auto classify(const auto& hidden) const {
    return matmul(dropout(hidden, {.rate = sizes_.dropout.element}), head_) + head_bias_;
  }

  /// The computation of one vertex. A template, so that other evaluators can run it, such as the oracle of the tests.
  void operator()(auto& v) const {
    const auto h_of = v.state("h", sizes_.hidden), c_of = v.state("c", sizes_.hidden);
    const auto word = read(v.pull_index("word", Presence::sometimes));
    const auto of_child = [&](std::size_t k) { return std::pair(v.gather(k, h_of), v.gather(k, c_of)); };
    const auto [own, c] = cell(word, of_child(0), of_child(1));
    v.scatter(h_of, own);
    v.scatter(c_of, c);
    const auto logits = classify(own);
    v.push("logits", logits);
    v.loss(softmax_cross_entropy(logits, v.pull_index("label")));
  }

  /// Floating point operations of the forward products of a tree: 6 h e per leaf, 16 h^2 per inner vertex, 2 h classes
  /// per vertex (h: hidden size, e: embedding size). Training takes three times as many.
  double flops(std::int64_t leaves, std::int64_t inner) const;

 private:
  TreeLstmSizes sizes_;
  Parameter words_, leaf_, inner_, bias_, forget_, forget_bias_, head_, head_bias_;
};

}  // namespace windrow
