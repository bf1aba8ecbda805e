// The child-sum Tree-LSTM of Tai, Socher and Manning 2015: gates depend on the sum of the children's states, and each
// child has its own forget gate. For trees and graphs of any arity.
//
// With attention (Zhou, Liu and Pan 2016), gates depend on a weighted mean of the children's states instead. Theirs
// attends to what fits another sentence; here the weights depend on the states alone, as in Yang et al. 2016: they are
// the softmax of tanh(h W) s over the children, for parameters W and s.
#pragma once
#include "windrow/engine/requirements.h"

#include <cstdint>
#include <optional>
#include <string>

#include "windrow/models/tree_lstm.h"

namespace windrow {

/// A handle to its parameters. Graphs, outputs and loss are those of TreeLstm, for any number of children; vertices
/// with children may have words too.
class ChildSumTreeLstm {
 public:
  static constexpr std::size_t arity = any_arity;

  /// What gates read of the children's states.
  enum class Children : std::uint8_t { sum, attention };

  /// Adds its parameters to the set; their names begin with `prefix`. Throws MisuseError if they are taken.
  ChildSumTreeLstm(Parameters& parameters, TreeLstmSizes sizes, Children children = Children::sum,
                   const std::string& prefix = {});

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
    const auto logits = matmul(dropout(own, {.rate = sizes_.dropout.element}), head_) + head_bias_;
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
