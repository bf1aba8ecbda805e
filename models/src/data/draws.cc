#include "data/draws.h"

#include <numeric>
#include <string_view>

namespace windrow {

std::size_t Draws::among(std::span<const int> counts) {
  int drawn = below(std::accumulate(counts.begin(), counts.end(), 0));
  std::size_t place = 0;
  while (drawn >= counts[place]) drawn -= counts[place++];
  return place;
}

Zipf::Zipf(int ranks, double offset) {
  double total = 0;
  for (int rank = 0; rank < ranks; ++rank) up_to_rank_.push_back(total += 1.0 / (rank + offset));
}

int Zipf::rank(double share) const {
  const double where = share * up_to_rank_.back();
  return static_cast<int>(std::upper_bound(up_to_rank_.begin(), up_to_rank_.end(), where) - up_to_rank_.begin());
}

int words_of_sentence(std::span<const int> counts, Draws& draws) {
  const auto fives = static_cast<int>(draws.among(counts));
  return 5 * fives + 1 + draws.below(5);
}

std::string spelled(int number) {
  constexpr std::string_view consonants = "bdfgjklmnprstvwz", vowels = "aeiou";
  constexpr int syllables = static_cast<int>(consonants.size() * vowels.size());
  std::string word;
  // Bijective numeration, so that different numbers give different words.
  for (++number; number > 0; number = (number - 1) / syllables) {
    const auto syllable = static_cast<std::size_t>((number - 1) % syllables);
    word += {consonants[syllable / vowels.size()], vowels[syllable % vowels.size()]};
  }
  return word;
}

std::string capitalised(std::string word) {
  if (!word.empty() && word[0] >= 'a' && word[0] <= 'z') word[0] = static_cast<char>(word[0] - 'a' + 'A');
  return word;
}

}  // namespace windrow
