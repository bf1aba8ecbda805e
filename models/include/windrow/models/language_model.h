// A language model: an LSTM that predicts each word of a text from those before it. A SentenceModel scores and draws
// sentences with a language model that was trained on sentences or on running text.
//
//   windrow::SentenceModel sentences(host, parameters, model, words);
//   std::vector<double> log_probabilities = sentences.score({{{5, 8, 3}}});
//   std::vector<std::vector<std::int32_t>> drawn = sentences.sample({}, {.texts = 10, .temperature = 0.8});
//
// Each sentence begins after the end mark of another one. The sentences of a call are one minibatch. Drawn sentences
// keep their states, so a step of all of them is one batch, and does not read earlier words again.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "windrow/batching/graph.h"
#include "windrow/batching/lazy_cell.h"
#include "windrow/batching/lazy_task.h"
#include "windrow/models/layers.h"

namespace windrow {

struct LanguageModelSizes {
  Index vocabulary, embedding, hidden;
  DropoutRates dropout = {};  ///< of words, and of the states that predict words
  /// Whether the table of embeddings is also the matrix of the classifier (Press and Wolf 2017).
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
    const auto read = dropout(own, sizes_.dropout.element);
    return (head_ ? matmul(read, *head_) : matmul_nt(read, words_)) + head_bias_;
  }

  /// The same network without dropout, for cells, which do not support it.
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

/// A value. The random numbers of a text depend only on the seed and on the number of the text.
struct SamplingOptions {
  std::size_t texts = 1;
  std::size_t first = 1;  ///< the number of the first text
  std::uint64_t seed = 1;
  /// Log-probabilities are divided by it before words are drawn; 0 takes the most probable word.
  double temperature = 1;
  std::size_t longest = 100;  ///< the most words that are drawn for a text
};

/// An owner. Uses the values that parameters have at each call, without dropout. Sentences are numbers of words,
/// without marks.
///
/// Errors: as for LazyGraph. Threads: one at a time.
class SentenceModel {
 public:
  static constexpr std::int32_t end = 1;  ///< the mark that ends a sentence, and precedes the first one
  using Words = std::vector<std::int32_t>;

  /// The words that can be drawn are numbers 2 to `words` - 1; number 0 stands for unknown words. Throws MisuseError
  /// unless `words` is at least 2, and at most the vocabulary of the model.
  SentenceModel(const Device& device, Parameters& parameters, const LanguageModel& model, std::int32_t words);

  /// The log-probability (natural logarithm) of each sentence: of all its words and the end mark. Waits. Throws
  /// MisuseError for numbers out of range.
  std::vector<double> score(std::span<const Words> sentences);
  /// Draws SamplingOptions::texts sentences that begin with these words, and returns the words after them. Waits. The
  /// draws do not depend on the number of workers or of texts. Throws MisuseError for numbers out of range, and for a
  /// temperature that is negative or not finite; Error if a probability is NaN.
  std::vector<Words> sample(const Words& start, const SamplingOptions& options);

 private:
  struct State {
    LazyExpr hidden = {}, cell = {};
    LazyExpr next = {};  // the log-probabilities of the next word
  };
  State read(const State& before, std::int32_t word);
  LazyTask<Words> write(State state, SamplingOptions options, std::size_t text);

  const LanguageModel model_;
  const std::int32_t words_;
  LazyGraph graph_;
  const LazyCell score_, next_;
};

}  // namespace windrow
