// Trees with the statistics of the training part of the Stanford Sentiment Treebank (Socher et al. 2013).
#include <algorithm>
#include <array>
#include <cmath>

#include "data/draws.h"
#include "windrow/models/datasets.h"

namespace windrow {
namespace {

/// The numbers of trees with 2, 3, 4, ... words.
constexpr std::array trees_of_words = {40,  96,  152, 154, 231, 218, 228, 265, 298, 305, 308, 319, 334,
                                       353, 334, 327, 342, 351, 325, 312, 317, 296, 290, 259, 238, 223,
                                       226, 171, 157, 158, 151, 124, 123, 99,  69,  54,  61,  38,  31,
                                       40,  24,  24,  20,  18,  11,  3,   8,   8,   4,   4,   3};
constexpr int fewest_words = 2;

/// The number of different words.
constexpr int ranks = 4000;

enum class Tone { neutral, good, bad, negation, emphasis };

Tone kind_of(int rank) {
  switch (rank % 12) {
    case 2:
    case 9:
      return Tone::good;
    case 3:
    case 7:
      return Tone::bad;
    case 5:
      return rank % 24 == 5 ? Tone::negation : Tone::emphasis;
    default:
      return Tone::neutral;
  }
}

std::string word_of_rank(int rank) {
  constexpr std::array names = {"word", "good", "bad", "not", "very"};
  return names[static_cast<std::size_t>(kind_of(rank))] + std::to_string(rank);
}

int worth_of(int rank) {
  const Tone kind = kind_of(rank);
  return kind == Tone::good ? 1 : kind == Tone::bad ? -1 : 0;
}

class TreeGenerator {
 public:
  explicit TreeGenerator(std::uint64_t seed) : draws_(seed) {}

  std::string tree() {
    std::string text;
    leaning_ = 0.4 * (draws_.share() - 0.5);
    append(words(), text);
    return text;
  }

 private:
  struct Meaning {
    int worth;  // -2 to 2
    Tone kind;  // of a single word; else neutral
  };

  int words() { return fewest_words + static_cast<int>(draws_.among(trees_of_words)); }

  /// Draws the number of words of the left subtree, out of n. It is often 1 (an article or a verb before its phrase) or
  /// n - 1 (a sentence before its full stop). Among the other numbers, larger ones are rarer.
  int left_of(int n) {
    const double one = 0.70 - 0.17 * std::log2(n / 4.0) + leaning_, all_but_one = 0.18;
    if (n == 2) return 1;
    if (n == 3) return draws_.share() < 0.77 ? 1 : 2;
    const double where = draws_.share();
    if (where < one) return 1;
    if (where < one + all_but_one) return n - 1;
    // Probabilities proportional to 1/k for k from 2 to n - 2, by inverting the integral.
    const double k = 1.5 * std::pow((n - 1.5) / 1.5, draws_.share());
    return std::min(static_cast<int>(k + 0.5), n - 2);
  }

  Meaning append(int n, std::string& text) {
    const std::size_t begin = text.size();
    text += "(_ ";
    Meaning meaning{};
    if (n == 1) {
      const int rank = ranks_.rank(draws_.share());
      meaning = {worth_of(rank), kind_of(rank)};
      text += word_of_rank(rank);
    } else {
      const int left_words = left_of(n);
      const Meaning left = append(left_words, text);
      text += ' ';
      meaning = {together(left, append(n - left_words, text)), Tone::neutral};
    }
    text[begin + 1] = static_cast<char>('0' + meaning.worth + 2);
    text += ')';
    return meaning;
  }

  static int together(Meaning left, Meaning right) {
    if (left.kind == Tone::negation) return -right.worth;
    const int sum = left.kind == Tone::emphasis ? 2 * right.worth : left.worth + right.worth;
    return std::clamp(sum, -2, 2);
  }

  Draws draws_;
  const Zipf ranks_{ranks, 3};
  double leaning_ = 0;  // of the current tree: some trees are close to chains, some are balanced
};

}  // namespace

std::string generate_treebank(std::size_t trees, std::uint64_t seed) {
  TreeGenerator generator(seed);
  std::string text;
  for (std::size_t i = 0; i < trees; ++i) text += generator.tree() + '\n';
  return text;
}

}  // namespace windrow
