// A language model: an LSTM that predicts each word of a text from those before it.
#pragma once
#include "windrow/engine/requirements.h"

#include <cstdint>
#include <optional>
#include <vector>

#include "windrow/batching/graph.h"
#include "windrow/models/dropout_rates.h"
#include "windrow/models/lstm.h"

namespace windrow {

struct LanguageModelSizes {
  Index vocabulary, embedding, hidden;
  DropoutRates dropout = {};  ///< of words, and of the states that predict words
  /// Whether the table of embeddings is the matrix of the classifier, too (Press and Wolf 2017).
  bool tied = false;
};

/// A handle to its parameters. The loss is the sum of the cross entropies (natural logarithm) of all predicted words.
class LanguageModel {
 public:
  static constexpr std::size_t arity = 1;

  /// Adds its parameters to the set. Throws MisuseError if their names are taken, and for tied sizes whose embedding
  /// and hidden states have two widths.
  LanguageModel(Parameters& parameters, LanguageModelSizes sizes);

  const LanguageModelSizes& sizes() const { return sizes_; }
  VertexFunction function() const { return VertexFunction("language_model", {.arity = arity}, *this); }
  /// A vertex for each word but the last; its label is the next word.
  static GraphData graph(const std::vector<std::int32_t>& words);

  void operator()(auto& v) const {
    const auto scores = logits(v);
    v.loss(softmax_cross_entropy(scores, v.pull_index("label")));
  }

  /// The part of the body that computes the logits of the next word, for cells that compute the same. States are "h"
  /// and "h cell".
  auto logits(auto& v) const {
    const auto word = sizes_.dropout.of_word(embedding(words_, v.pull_index("word")));
    const auto own = lstm_.step(v, lstm_.states(v, "h"), lstm_.project(word));
    const auto read = dropout(own, {.rate = sizes_.dropout.element});
    return (head_ ? matmul(read, *head_) : matmul_nt(read, words_)) + head_bias_;
  }

  /// The same network, without dropout: for cells, which cannot drop.
  LanguageModel without_dropout() const {
    LanguageModel same = *this;
    same.sizes_.dropout = {};
    return same;
  }

  /// Floating point operations of the forward products of a sequence: 8 h e per step, 8 h^2 per step but the first, 2 h
  /// vocabulary per step (h: hidden size, e: embedding size).
  double flops(std::int64_t steps) const;

 private:
  LanguageModelSizes sizes_;
  Parameter words_;
  Lstm lstm_;
  std::optional<Parameter> head_;  // none if tied
  Parameter head_bias_;
};

}  // namespace windrow
