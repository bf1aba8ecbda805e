// Beam search: finds probable sequences of a model that writes word by word. Each hypothesis is a state of the model,
// which the program continues as lazy expressions. The computations of the hypotheses of all tasks share batches.
//
//   windrow::LazyTask<std::vector<windrow::Hypothesis>> write(const Model& model, windrow::LazyExpr start) {
//     const auto step = [&](const windrow::LazyExpr& state, std::int32_t word) { return model.step(state, word); };
//     co_return co_await windrow::beam_search(start, step, {.width = 5});
//   }
//
// Every step continues the hypotheses by each word, and keeps the most probable ones. A hypothesis that ends is stored,
// and the beam is then narrower by one (Sutskever, Vinyals and Le 2014; Bahdanau, Cho and Bengio 2015). Since longer
// sequences are less probable, ended hypotheses are compared by their log-probability divided by a power of their
// length.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "windrow/batching/lazy_task.h"

namespace windrow {

struct BeamSearchOptions {
  std::size_t width = 1;        ///< hypotheses at a time; 1 is greedy search, which takes the best word at each step
  double length_power = 1;      ///< 0 compares log-probabilities themselves
  std::size_t longest = 10000;  ///< words without the end mark; a longer hypothesis is forced to end
  std::int32_t begin = 1, end = 2;  ///< the marks, as in SentenceVocabulary
};

/// A sequence that has ended. A value.
struct Hypothesis {
  std::vector<std::int32_t> words = {};  ///< without marks
  double log_probability = 0;            ///< of the words and the end mark; natural logarithm
  double score = 0;                      ///< log_probability / length^length_power; the length counts the end mark
};

/// The hypotheses of one search. Knows their words and probabilities, and not their states. A value.
class Beam {
 public:
  /// Throws MisuseError for width 0, and for a power that is negative or not finite.
  explicit Beam(BeamSearchOptions options);

  /// The number of hypotheses that have not ended.
  std::size_t open() const { return open_.size(); }
  /// The last word of hypothesis i, or the begin mark. Precondition: i < open().
  std::int32_t last_word(std::size_t i) const;
  /// Continues the hypotheses. `log_probabilities` has a row for each, with an element for each word. Returns, for each
  /// hypothesis that is open afterwards, the number of the one that it continues. The begin mark is never written.
  /// Throws Error if a log-probability is NaN.
  std::vector<std::size_t> advance(const std::vector<std::vector<float>>& log_probabilities);
  /// The hypotheses that have ended: at most `width`, the one with the highest score first.
  std::vector<Hypothesis> ended() const;

 private:
  struct Candidate;
  BeamSearchOptions options_;
  std::vector<Hypothesis> open_{1}, ended_;
};

/// Searches from a state. `step` records how a word continues a state. It returns a pair: the new state, of a type that
/// can be copied, and a LazyExpr of the row of log-probabilities of the next word. When a hypothesis is dropped, its
/// handles are, too. Returns Beam::ended(). Throws as Beam and LazyExpr::value do.
template <class State, class Step>
LazyTask<std::vector<Hypothesis>> beam_search(State start, Step step, BeamSearchOptions options) {
  Beam beam(options);
  std::vector<State> states;  // of the open hypotheses
  states.push_back(std::move(start));
  while (beam.open() > 0) {
    std::vector<LazyExpr> scores;
    for (std::size_t i = 0; i < states.size(); ++i) {
      auto [state, log_probabilities] = step(std::as_const(states[i]), beam.last_word(i));
      states[i] = std::move(state);
      scores.push_back(std::move(log_probabilities));
    }
    std::vector<std::vector<float>> rows;
    for (LazyExpr& row : scores) rows.push_back(co_await value(std::move(row)));
    std::vector<State> continued;
    for (const std::size_t i : beam.advance(rows)) continued.push_back(states[i]);
    states = std::move(continued);
  }
  co_return beam.ended();
}

}  // namespace windrow
