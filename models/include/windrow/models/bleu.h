// BLEU (Papineni et al. 2002): how similar translations are to reference translations, by the n-grams that they share.
#pragma once
#include "windrow/engine/requirements.h"

#include <array>
#include <cstdint>

#include "windrow/models/sentences.h"

namespace windrow {

/// Accumulates the BLEU of a set of translations, each with one reference: n-grams of up to four words, counted over
/// the whole set. Words are compared as they are; nothing is tokenised or changed. A value.
///
/// Follows the definition of sacreBLEU (Post 2018) with its defaults: of the orders without a match, the first one has
/// the precision of half a match, the next one that of a quarter, and so on. The score is 0 if no word matches, or if
/// there is no n-gram of some order.
class Bleu {
 public:
  static constexpr std::size_t orders = 4;

  void add(const Sentence& translation, const Sentence& reference);

  /// The score, from 0 to 100.
  double score() const;
  /// The share of the translations' n-grams that occur in their references, from 0 to 1, for n = 1, 2, ...; smoothed as
  /// described. An n-gram counts at most as often as it occurs in the reference.
  std::array<double, orders> precisions() const;
  /// The factor by which the score is lower because the translations are shorter than the references.
  double brevity_penalty() const;

 private:
  std::array<std::int64_t, orders> matches_ = {}, all_ = {};  // n-grams of the translations
  std::int64_t words_ = 0, reference_words_ = 0;
};

}  // namespace windrow
