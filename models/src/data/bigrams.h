// A made-up language in which a word depends on the one before it.
#pragma once

#include "data/draws.h"

namespace windrow {

/// Words are ranks, the most frequent being 0. Immutable; it does not depend on any seed, so that what is learned from
/// one text holds for another.
class Bigrams {
 public:
  /// Before the first word of a sentence.
  static constexpr int start = -1;

  explicit Bigrams(int words) : words_(words, 1.8) {}  // the offset that gives "the" its share in the Penn Treebank

  /// Half the time one of the four that like to follow `before`: the first half of that time, the second a quarter.
  int next(int before, Draws& draws) const {
    if (draws.chance(0.5)) return follower(before, preference(draws.share()));
    return words_.rank(draws.share());
  }

 private:
  static int preference(double share) { return share < 0.5 ? 0 : share < 0.75 ? 1 : share < 0.875 ? 2 : 3; }

  /// Words follow others as often as they are frequent.
  int follower(int before, int preferred) const {
    auto mixed = static_cast<std::uint64_t>(4 * (before + 1) + preferred + 1) * 0x9e3779b97f4a7c15u;  // SplitMix64
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return words_.rank(static_cast<double>((mixed ^ (mixed >> 31)) >> 11) * 0x1p-53);
  }

  Zipf words_;
};

}  // namespace windrow
