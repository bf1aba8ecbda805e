// What generators of data share: draws that are the same with every library, and words that they make up.
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

  /// From 0 to below 1. Not std::uniform_real_distribution, which differs between libraries.
  double share() { return static_cast<double>(random_() >> 11) * 0x1p-53; }
  /// `n` is 1 or more.
  int below(int n) { return static_cast<int>(share() * n); }
  bool chance(double probability) { return share() < probability; }
  /// A place in `counts`, each as often as it says there.
  std::size_t among(std::span<const int> counts);

 private:
  std::mt19937_64 random_;
};

/// Ranks from 0 to `ranks` - 1, of which the r-th is drawn with probability ~ 1 / (r + offset) (Zipf, Mandelbrot).
class Zipf {
 public:
  Zipf(int ranks, double offset);
  /// That of a share from 0 to below 1 of all that is drawn, which the frequent ones come first in.
  int rank(double share) const;

 private:
  std::vector<double> up_to_rank_;
};

/// The words of lengths 1 to 5, 6 to 10, ... as in `counts`, which has how many sentences there are of each.
int words_of_sentence(std::span<const int> counts, Draws& draws);

/// A pronounceable word, another for each number from 0, the shorter the less: a consonant and a vowel, and so on.
std::string spelled(int number);
/// With a capital letter.
std::string capitalised(std::string word);

}  // namespace windrow
