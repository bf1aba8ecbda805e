// Tree-LSTMs for vertex functions; the binary one also for lazy expressions. Read TreeLstm to see how a model is
// written.
//
// Binary: the gates of a leaf depend on its word, the gates of an inner vertex on both children, and each forget gate
// on its own child. Every vertex has a classifier. After Tai, Socher and Manning 2015, whose forget gates depend on
// both children. Benchmarks of dynamic batching use the variant here.
//
// Child-sum (Tai, Socher and Manning 2015), for trees and graphs of any arity: gates depend on the sum of the
// children's states, and each child has its own forget gate. With attention (Zhou, Liu and Pan 2016), gates depend on a
// weighted mean of the children's states instead. Their weights also depend on another sentence. Here the weights
// depend only on the states, as in Yang et al. 2016: they are the softmax of tanh(h W) s over the children, for
// parameters W and s.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "windrow/batching/parameters.h"
#include "windrow/batching/vertex_function.h"
#include "windrow/models/layers.h"

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

  /// Adds its parameters to the set, named by parameter_name(); a TreeLstm that is alone in its set needs no name.
  /// Throws MisuseError if the names are taken, as by another TreeLstm of that name.
  TreeLstm(Parameters& parameters, TreeLstmSizes sizes, const std::string& name = {})
      : sizes_(sizes),
        words_(parameters.add(parameter_name(name, "words"), sizes.vocabulary, sizes.embedding,
                              Initial::uniform(-0.1f, 0.1f))),
        leaf_(parameters.add_product(parameter_name(name, "leaf"), sizes.embedding, 3 * sizes.hidden)),
        inner_(parameters.add_product(parameter_name(name, "inner"), 2 * sizes.hidden, 3 * sizes.hidden)),
        bias_(parameters.add(parameter_name(name, "bias"), 1, 3 * sizes.hidden, Initial::zeros())),
        forget_(parameters.add_product(parameter_name(name, "forget"), sizes.hidden, sizes.hidden)),
        forget_bias_(parameters.add(parameter_name(name, "forget_bias"), 1, sizes.hidden, Initial::constant(1))),
        head_(parameters.add_product(parameter_name(name, "head"), sizes.hidden, sizes.classes)),
        head_bias_(parameters.add(parameter_name(name, "head_bias"), 1, sizes.classes, Initial::zeros())) {}

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
    return matmul(dropout(hidden, sizes_.dropout.element), head_) + head_bias_;
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

/// A handle to its parameters. Graphs, outputs and loss are those of TreeLstm, for any number of children; vertices
/// with children may have words too.
class ChildSumTreeLstm {
 public:
  static constexpr std::size_t arity = any_arity;

  /// How gates combine the children's states.
  enum class Children : std::uint8_t { sum, attention };

  /// Adds its parameters to the set, named by parameter_name(). Throws MisuseError if the names are taken.
  ChildSumTreeLstm(Parameters& parameters, TreeLstmSizes sizes, Children children = Children::sum,
                   const std::string& name = {});

  VertexFunction function() const { return VertexFunction("child_sum_tree_lstm", {.arity = arity}, *this); }

  void operator()(auto& v) const {
    const Index h = sizes_.hidden;
    const auto h_of = v.state("h", h), c_of = v.state("c", h);
    const auto below = v.each(h_of);
    const auto word = sizes_.dropout.of_word(embedding(words_, v.pull_index("word", Presence::sometimes)));
    const auto gates = matmul(word, in_) + matmul(attention_ ? attend(below) : sum_children(below), sum_) + bias_;
    const auto keep = sigmoid(matmul(below, forget_) + (matmul(word, forget_in_) + forget_bias_));
    const auto in = sigmoid(slice(gates, 0, h)), out = sigmoid(slice(gates, h, 2 * h));
    const auto c = in * tanh(slice(gates, 2 * h, 3 * h)) + sum_children(keep * v.each(c_of));
    const auto own = out * tanh(c);
    v.scatter(h_of, own);
    v.scatter(c_of, c);
    const auto logits = matmul(dropout(own, sizes_.dropout.element), head_) + head_bias_;
    v.push("logits", logits);
    v.loss(softmax_cross_entropy(logits, v.pull_index("label")));
  }

  /// Floating point operations of the forward products of a tree whose words are at its leaves: 6 h e per leaf, 6 h^2
  /// per inner vertex, 2 h^2 per edge, 2 h classes per vertex; with attention also 2 h^2 + 2 h per edge (h: hidden
  /// size, e: embedding size).
  double flops(std::int64_t leaves, std::int64_t inner, std::int64_t edges) const;

 private:
  struct Attention {
    Parameter hidden, score;
  };

  auto attend(const auto& below) const {
    const auto scores = matmul(tanh(matmul(below, attention_->hidden)), attention_->score);
    return sum_children(below * softmax_children(scores));
  }

  TreeLstmSizes sizes_;
  Parameter words_, in_, sum_, bias_, forget_, forget_in_, forget_bias_, head_, head_bias_;
  std::optional<Attention> attention_;
};

}  // namespace windrow
