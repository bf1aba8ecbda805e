// Sentences with the statistics of the validation and test parts of the Penn Treebank in Mikolov's preprocessing.
#include <array>

#include "data/bigrams.h"
#include "windrow/models/sentences.h"

namespace windrow {
namespace {

/// The numbers of sentences with 1 to 5, 6 to 10, ... words.
constexpr std::array sentences_of_words = {317, 786, 1218, 1344, 1291, 984, 595, 336, 161, 56, 24, 13, 2, 2, 1};

std::string text_of(int rank) {
  // About as frequent as in the Penn Treebank.
  if (rank == 1) return "N";
  if (rank == 2) return "<unk>";
  return spelled(rank);
}

}  // namespace

std::string generate_sentences(std::size_t sentences, std::uint64_t seed) {
  const Bigrams language(10000);
  Draws draws(seed);
  std::string text;
  for (std::size_t i = 0; i < sentences; ++i) {
    int word = Bigrams::start;
    for (int left = words_of_sentence(sentences_of_words, draws); left > 0; --left) {
      text += text_of(word = language.next(word, draws));
      text += left > 1 ? ' ' : '\n';
    }
  }
  return text;
}

}  // namespace windrow
