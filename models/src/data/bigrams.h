// An invented language in which each word depends on the previous one.
#pragma once

#include "data/draws.h"

namespace windrow {

/// Words are ranks; 0 is the most frequent word. Immutable. The language does not depend on a seed, so a model trained
/// on one text applies to another.
class Bigrams {
 public:
  /// Stands for the word before the first word of a sentence.
  static constexpr int start = -1;

  explicit Bigrams(int words) : words_(words, 1.8) {}  // the offset that gives "the" its share in the Penn Treebank

  /// With probability 1/2, one of the four words that prefer to follow `before`: the first one in half of these cases,
  /// the second one in a quarter.
  int next(int before, Draws& draws) const {
    if (draws.chance(0.5)) return follower(before, preference(draws.share()));
    return words_.rank(draws.share());
  }

 private:
  static int preference(double share) { return share < 0.5 ? 0 : share < 0.75 ? 1 : share < 0.875 ? 2 : 3; }

  /// Frequent words also follow more words.
  int follower(int before, int preferred) const {
    auto mixed = static_cast<std::uint64_t>(4 * (before + 1) + preferred + 1) * 0x9e3779b97f4a7c15u;  // SplitMix64
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return words_.rank(static_cast<double>((mixed ^ (mixed >> 31)) >> 11) * 0x1p-53);
  }

  Zipf words_;
};

}  // namespace windrow
