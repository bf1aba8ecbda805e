// A linear-chain conditional random field over the tags of a sequence (Lafferty, McCallum and Pereira 2001), for vertex
// functions and lazy expressions.
//
// The score of a sequence of tags is the sum of the emissions of its tags, of the transitions between neighbours, and
// of the start and stop scores of its ends. The loss of a sequence is the logarithm of the sum of exp(score) over all
// sequences of tags, minus the score of the gold sequence:
//
//   LazyExpr alpha = crf.first(emissions[0]), gold = crf.first_score(emissions[0], tag[0]);
//   for (t = 1; t < n; ++t) {
//     alpha = crf.next(alpha, emissions[t]);
//     gold = gold + crf.next_score(emissions[t], tag[t - 1], tag[t]);
//   }
//   loss = crf.log_partition(alpha) - (gold + crf.last_score(tag[n - 1]));
//
// Decoding replaces the sums by maxima (Viterbi 1967): best_first(), best_next() and came_from() for each word but the
// first, best_last() behind the last one. The host follows the results back from there: before().
#pragma once
#include "windrow/engine/requirements.h"

#include <cstdint>
#include <span>
#include <string>

#include "windrow/batching/parameters.h"

namespace windrow {

/// A handle to its parameters. Emissions have a column for each tag. Tags are index operands, and not -1.
class Crf {
 public:
  /// Adds its parameters, zeros, with names that begin with `name`. Throws MisuseError if these are taken. A transition
  /// of -1e30 is forbidden.
  Crf(Parameters& parameters, const std::string& name, Index tags);

  Index tags() const { return transitions_.type().width; }

  // The forward algorithm: the logarithm of the sum over all sequences up to a word that end in each tag.
  auto first(const auto& emissions) const { return emissions + start_; }
  template <class Expression>
  Expression next(const Expression& alpha, const Expression& emissions) const {
    return log_matmul(alpha, transitions_) + emissions;
  }
  /// Of width 1, from the last word.
  auto log_partition(const auto& alpha) const { return log_matmul(alpha, stop_); }

  // What a word adds to the score of the gold sequence, and what its end adds; of width 1.
  auto first_score(const auto& emissions, const auto& tag) const { return pick(emissions + start_, tag); }
  auto next_score(const auto& emissions, const auto& before, const auto& tag) const {
    return pick(emissions + embedding(transitions_, before), tag);
  }
  auto last_score(const auto& tag) const { return embedding(stop_, tag); }

  // Decoding, without gradients: the best score up to a word, for each tag in which it ends.
  auto best_first(const auto& emissions) const { return stop_gradient(first(emissions)); }
  template <class Expression>
  Expression best_next(const Expression& best, const Expression& emissions) const {
    return stop_gradient(max_matmul(best, transitions_) + emissions);
  }
  /// For each tag of a word, the tag before it in the best sequence, as a float.
  auto came_from(const auto& best_before) const { return argmax_matmul(best_before, transitions_); }
  /// The last tag of the best sequence, as a float of width 1.
  auto best_last(const auto& best) const { return argmax_matmul(best, stop_); }

  /// The tag before `tag` in the best sequence: an element of the row that came_from() has computed.
  static std::int32_t before(std::span<const float> came_from, std::int32_t tag) {
    return static_cast<std::int32_t>(came_from[static_cast<std::size_t>(tag)]);
  }

 private:
  Parameter transitions_, start_, stop_;  // from each row's tag to each column's; a row; a column
};

}  // namespace windrow
