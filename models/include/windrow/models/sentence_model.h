// Scores sentences, and draws some, with a LanguageModel that was trained on sentences or on running text.
//
//   windrow::SentenceModel sentences(host, parameters, model, words);
//   std::vector<double> log_probabilities = sentences.score({{{5, 8, 3}}});
//   std::vector<std::vector<std::int32_t>> drawn = sentences.sample({}, {.texts = 10, .temperature = 0.8});
//
// Each sentence begins after the end mark of another one. The sentences of a call are one minibatch. Those that are
// drawn keep their states: a step of all of them is one batch, and the words before it are not read again.
#pragma once
#include "windrow/engine/requirements.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "windrow/batching/lazy_cell.h"
#include "windrow/batching/lazy_task.h"
#include "windrow/models/language_model.h"

namespace windrow {

/// A value. Each text has random numbers of its own, by the seed and the number of the text.
struct SamplingOptions {
  std::size_t texts = 1;
  std::size_t first = 1;  ///< the number of the first text
  std::uint64_t seed = 1;
  /// Log-probabilities are divided by it before words are drawn; 0 takes the most probable word.
  double temperature = 1;
  std::size_t longest = 100;  ///< words drawn for a text, which ends there if it has not ended before
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
  /// Draws SamplingOptions::texts sentences that begin with these words, and returns what follows. Waits. The same
  /// draws for any number of workers, and of texts. Throws MisuseError for numbers out of range, and a temperature that
  /// is negative or not finite; Error if a probability is not a number.
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
