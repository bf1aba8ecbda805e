// Translates sentences with a Seq2Seq, by greedy or beam search.
//
//   windrow::Translator translator(host, parameters, model);
//   std::vector<std::vector<windrow::Hypothesis>> found = translator.translate({{5, 8, 3}}, {.width = 5});
//   windrow::Sentence best = vocabulary.words(found[0][0].words);
#pragma once
#include "windrow/engine/requirements.h"

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "windrow/batching/lazy_cell.h"
#include "windrow/models/beam_search.h"
#include "windrow/models/seq2seq.h"

namespace windrow {

/// An owner. Uses the values that parameters have when it translates, without dropout.
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
