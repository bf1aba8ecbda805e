// Vocabularies: numbers for words, tags or characters. They know nothing of where these come from.
//
//   windrow::Vocabulary words(sentences | std::views::join, 5);
//   std::int32_t number = words.number("cat");
#pragma once

#include <concepts>
#include <cstdint>
#include <ranges>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace windrow {

/// How often words were seen, in the order in which they were first. An empty word counts as none. A value.
class WordCounts {
 public:
  void add(std::string_view word);

 private:
  friend class Vocabulary;
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view word) const { return std::hash<std::string_view>()(word); }
  };
  using Numbers = std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>>;

  Numbers place_;                                             // in counts_
  std::vector<std::pair<std::string, std::int64_t>> counts_;  // each with its word
};

/// Numbers words. A value; const members from any thread.
class Vocabulary {
 public:
  /// Of all words that it does not know. They share one number, so that something is learned about them.
  static constexpr std::int32_t unknown = 0;

  /// The words that are seen `at_least` times, which counts as 1 if it is less. They have the numbers from 1, in the
  /// order in which they were first seen; so the same text gives the same numbers.
  Vocabulary(const WordCounts& counts, std::int64_t at_least);
  /// The same from any range of strings.
  template <std::ranges::input_range Words>
  requires std::convertible_to<std::ranges::range_reference_t<Words>, std::string_view> Vocabulary(
      Words&& words, std::int64_t at_least)
      : Vocabulary(counts_of(std::forward<Words>(words)), at_least) {}

  /// How many numbers there are, that of unknown words among them.
  std::int32_t size() const { return static_cast<std::int32_t>(numbers_.size()) + 1; }
  std::int32_t number(std::string_view word) const;

 private:
  template <class Words>
  static WordCounts counts_of(Words&& words) {
    WordCounts counts;
    for (auto&& word : words) counts.add(word);
    return counts;
  }

  WordCounts::Numbers numbers_;
};

/// The characters of a word, as parts of it: the code points of UTF-8, since a letter with an accent is one letter to
/// who reads a name, however many bytes it takes. A byte that is part of no code point is a character by itself, so
/// that any text has characters.
std::vector<std::string_view> characters(std::string_view word);

}  // namespace windrow
