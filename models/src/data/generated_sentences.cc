// Sentences with the statistics of the validation and test parts of the Penn Treebank in Mikolov's preprocessing. And
// sentences with names, with the statistics of the English part of WikiNER (Nothman et al. 2012).
#include <array>
#include <string_view>

#include "data/draws.h"
#include "windrow/models/datasets.h"

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

namespace {

/// The numbers of sentences with 1 to 5, 6 to 10, ... words.
constexpr std::array tagged_sentences_of_words = {37, 178, 310, 333, 290, 182, 129, 78, 57, 36,
                                                  21, 17,  10,  5,   3,   2,   1,   1,  1};

/// After this word, a name that ends in -en is a place.
constexpr int where = 4;
constexpr int most_words_of_name = 3;

enum class Name { person, place, other, ambiguous, organisation };
/// The relative number of names of each kind.
constexpr std::array names_of_kind = {23, 34, 35, 8, 23};

class TaggedGenerator {
 public:
  explicit TaggedGenerator(std::uint64_t seed) : draws_(seed) {}

  std::string sentence() {
    text_.clear();
    before_ = Bigrams::start;
    left_ = words_of_sentence(tagged_sentences_of_words, draws_) - 1;
    while (left_ > 0) {
      if (left_ >= most_words_of_name && draws_.chance(0.18)) name();
      common();  // after each name, so that no two names are neighbours
    }
    return text_ + ".|O\n";
  }

 private:
  void append(std::string word, std::string_view tag) {
    if (text_.empty()) word = capitalised(word);
    text_ += word;
    text_ += '|';
    text_ += tag;
    text_ += ' ';
    --left_;
  }

  void common() {
    before_ = language_.next(before_, draws_);
    append(spelled(before_), "O");
  }

  void name() {
    switch (static_cast<Name>(draws_.among(names_of_kind))) {
      case Name::person:
        return person("I-PER");
      case Name::place:
        return append(named(draws_.chance(0.5) ? "ton" : "land"), "I-LOC");
      case Name::other:
        return append(named(draws_.chance(0.5) ? "ish" : "ot"), "I-MISC");
      case Name::ambiguous:
        return ambiguous();
      case Name::organisation:
        return organisation();
    }
  }

  void person(std::string_view tag) {
    append(named("mir"), tag);
    if (draws_.chance(0.7)) append(named("son"), tag);
  }

  void ambiguous() {
    if (before_ != where && draws_.chance(0.5)) append(spelled(before_ = where), "O");
    append(named("en"), before_ == where ? "I-LOC" : "I-PER");
  }

  void organisation() {
    constexpr std::array<std::string_view, 3> ends = {"Group", "Union", "Corp"};
    if (draws_.chance(0.3)) {
      person("I-ORG");
    } else {
      append(named(draws_.chance(0.5) ? "ton" : "en"), "I-ORG");
    }
    append(std::string(ends[static_cast<std::size_t>(draws_.below(3))]), "I-ORG");
  }

  std::string named(std::string_view ending) {
    std::string word = capitalised(spelled(stems_.rank(draws_.share())));
    if (ending[0] == 'e' || ending[0] == 'i' || ending[0] == 'o') word.pop_back();  // replaces the last vowel
    return word.append(ending);
  }

  Draws draws_;
  const Bigrams language_{10000};
  const Zipf stems_{10000, 60};  // a flat distribution, so that most names are rare
  std::string text_;
  int before_ = Bigrams::start;
  int left_ = 0;  // the number of remaining words
};

}  // namespace

std::string generate_tagged_sentences(std::size_t sentences, std::uint64_t seed) {
  TaggedGenerator generator(seed);
  std::string text;
  for (std::size_t i = 0; i < sentences; ++i) text += generator.sentence();
  return text;
}

}  // namespace windrow
