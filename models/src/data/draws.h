// Shared by generators of data: random draws that do not depend on the standard library, and invented words.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace windrow {

/// The same seed gives the same draws.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : random_(seed) {}

  /// A number in [0, 1). Not std::uniform_real_distribution, which differs between libraries.
  double share() { return static_cast<double>(random_() >> 11) * 0x1p-53; }
  /// `n` is 1 or more.
  int below(int n) { return static_cast<int>(share() * n); }
  bool chance(double probability) { return share() < probability; }
  /// An index into `counts`, with a probability proportional to its count.
  std::size_t among(std::span<const int> counts);

 private:
  std::mt19937_64 random_;
};

/// Ranks from 0 to `ranks` - 1. Rank r has a probability proportional to 1 / (r + offset) (Zipf, Mandelbrot).
class Zipf {
 public:
  Zipf(int ranks, double offset);
  /// The rank at that cumulative probability, in [0, 1).
  int rank(double share) const;

 private:
  std::vector<double> up_to_rank_;
};

/// An invented language in which each word depends on the previous one. Words are ranks; 0 is the most frequent word.
/// Immutable. The language does not depend on a seed, so a model trained on one text applies to another.
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

  /// A frequent word is a preferred follower of more words.
  int follower(int before, int preferred) const {
    auto mixed = static_cast<std::uint64_t>(4 * (before + 1) + preferred + 1) * 0x9e3779b97f4a7c15u;  // SplitMix64
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
    return words_.rank(static_cast<double>((mixed ^ (mixed >> 31)) >> 11) * 0x1p-53);
  }

  Zipf words_;
};

/// Draws the number of words of a sentence. `counts` has the number of sentences with 1 to 5, 6 to 10, ... words.
int words_of_sentence(std::span<const int> counts, Draws& draws);

/// A pronounceable word of alternating consonants and vowels. Each number from 0 gives another word; lower numbers give
/// shorter words.
std::string spelled(int number);
/// The word with a capital first letter.
std::string capitalised(std::string word);

}  // namespace windrow
