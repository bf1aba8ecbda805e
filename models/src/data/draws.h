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

/// Draws the number of words of a sentence. `counts` has the number of sentences with 1 to 5, 6 to 10, ... words.
int words_of_sentence(std::span<const int> counts, Draws& draws);

/// A pronounceable word of alternating consonants and vowels. Each number from 0 gives another word; lower numbers give
/// shorter words.
std::string spelled(int number);
/// The word with a capital first letter.
std::string capitalised(std::string word);

}  // namespace windrow
