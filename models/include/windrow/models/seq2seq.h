// A network that reads a sentence and writes its translation word by word, with attention to the words that it has
// read. (Luong, Pham and Manning 2015, after Bahdanau, Cho and Bengio 2015.) Words of both sentences are vertices of
// one graph.
//
//   forward    o -> o -> o          over the source words
//   backward   o <- o <- o
//   annotation o    o    o          joins both directions at its word
//                \  |  /
//   step       o -> o -> o -> o     reads the target word before it, attends to all annotations, predicts its word
//
// Each step scores the annotations by a network with one hidden layer, as Bahdanau et al. do, and reads their mean,
// weighted by the softmax of the scores. The value that it computes from this mean and its state is also an input of
// the next step ("input feeding"), so a step knows the attention of the steps before it.
//
// A Translator translates sentences with it, by greedy or beam search:
//
//   windrow::Translator translator(host, parameters, model);
//   std::vector<std::vector<windrow::Hypothesis>> found = translator.translate({{5, 8, 3}}, {.width = 5});
//   windrow::Sentence best = vocabulary.words(found[0][0].words);
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "windrow/batching/graph.h"
#include "windrow/batching/lazy_cell.h"
#include "windrow/models/beam_search.h"
#include "windrow/models/layers.h"

namespace windrow {

struct Seq2SeqSizes {
  Index source, target;  ///< numbers of words, marks included
  Index embedding, hidden;
  DropoutRates dropout = {};  ///< of words, and of the values that predict words
};

/// A handle to its parameters.
///
/// The loss is the sum of the cross entropies of all target words and of the end mark, each predicted from the true
/// words before it. Step vertices have an output "margin" of width 1: the largest logit minus the logit of the target
/// word; 0 if they predict that word. (An output of all logits would be as wide as the vocabulary.)
class Seq2Seq {
 public:
  /// The kinds of vertices.
  enum Kind : std::size_t { forward, backward, annotation, step };
  static constexpr VertexFunction::Shape shapes[] = {{1}, {1}, {2}, {.arity = any_arity, .fixed = 1}};

  /// Adds its parameters to the set. Throws MisuseError if their names are taken.
  Seq2Seq(Parameters& parameters, Seq2SeqSizes sizes);

  const Seq2SeqSizes& sizes() const { return sizes_; }
  VertexFunction function() const;
  /// The graph of a sentence and its translation, for function(). `target` begins with the mark of the begin and ends
  /// with that of the end; there is a step for each word but the last. Precondition: `source` has a word.
  static GraphData graph(std::span<const std::int32_t> source, std::span<const std::int32_t> target);

  void operator()(auto& v, std::size_t kind) const {
    if (kind == annotation) return annotate(v);
    if (kind != step) return read(v, kind);
    const auto scores = logits(v);
    const auto label = v.pull_index("label");
    v.push("margin", row_max(scores) - pick(scores, label));
    v.loss(softmax_cross_entropy(scores, label));
  }

  // Parts of the body, for cells that compute the same: a step of the encoder, an annotation, and a step of the
  // decoder, which returns the logits of its word. States are "forward", "backward" and "decoder", each
  // with another one of the same name and " cell"; "annotation" and "key"; and "found".
  void read(auto& v, std::size_t direction) const {
    const Lstm& lstm = direction == forward ? forward_ : backward_;
    const auto word = sizes_.dropout.of_word(embedding(source_words_, v.pull_index("source")));
    lstm.step(v, lstm.states(v, direction == forward ? "forward" : "backward"), lstm.project(word));
  }
  void annotate(auto& v) const {
    const Index h = sizes_.hidden;
    const auto both = concat(v.gather(0, v.state("forward", h)), v.gather(1, v.state("backward", h)));
    v.scatter(v.state("annotation", 2 * h), both);
    v.scatter(v.state("key", h), attention_.project_key(both));
  }
  auto logits(auto& v) const {
    const Index h = sizes_.hidden;
    const auto found_of = v.state("found", h);
    const auto word = sizes_.dropout.of_word(embedding(target_words_, v.pull_index("previous")));
    const auto own =
        decoder_.step(v, decoder_.states(v, "decoder"), decoder_.project(word) + matmul(v.gather(0, found_of), feed_));
    const auto scores = attention_.score_projected(attention_.project(own), v.each(v.state("key", h)));
    const auto context = sum_children(v.each(v.state("annotation", 2 * h)) * softmax_children(scores));
    const auto found = tanh(matmul(concat(own, context), find_));
    v.scatter(found_of, found);
    return matmul(dropout(found, sizes_.dropout.element), head_) + head_bias_;
  }

  /// The same network without dropout, for cells, which do not support it.
  Seq2Seq without_dropout() const {
    Seq2Seq same = *this;
    same.sizes_.dropout = {};
    return same;
  }

  /// Floating point operations of the forward products: 16 h e + 4 h^2 per source word, 16 h^2 per source word but the
  /// first, 8 h e + 8 h^2 + 2 h target per step, 16 h^2 per step but the first, 2 h per step and source word (h: hidden
  /// size, e: embedding size).
  double flops(std::int64_t source_words, std::int64_t steps) const;

 private:
  Seq2SeqSizes sizes_;
  Parameter source_words_, target_words_;
  Lstm forward_, backward_, decoder_;
  AdditiveAttention attention_;
  Parameter feed_, find_, head_, head_bias_;
};

/// An owner. Uses the current values of the parameters at each call, without dropout.
///
/// Errors: as for LazyGraph. Threads: one at a time.
class Translator {
 public:
  Translator(const Device& device, Parameters& parameters, const Seq2Seq& model,
             const RunnerOptions& options = {.schedule = SchedulePolicy::agenda});

  /// The translations of each sentence, the best one first; at most `width` of each. A translation has at most twice as
  /// many words as the sentence and 10 more. All sentences are one minibatch; waits. Throws MisuseError for a sentence
  /// without words, for numbers out of range, and as Beam does, and Error if probabilities are not finite.
  std::vector<std::vector<Hypothesis>> translate(std::span<const std::vector<std::int32_t>> sentences,
                                                 BeamSearchOptions options = {});

 private:
  struct State {
    LazyExpr hidden = {}, cell = {}, found = {};
  };
  using Words = std::span<const std::int32_t>;

  /// Records both directions and the annotations of a sentence: the key and the annotation of each word.
  std::vector<LazyExpr> read(Words sentence);
  std::vector<LazyExpr> read_one_way(const LazyCell& cell, Words sentence);
  std::pair<State, LazyExpr> step(const State& before, std::int32_t word, std::span<const LazyExpr> annotations);
  LazyTask<std::vector<Hypothesis>> search(Words sentence, BeamSearchOptions options);

  const Seq2Seq model_;
  LazyGraph graph_;
  const LazyCell forward_, backward_, annotate_, step_;
};

}  // namespace windrow
