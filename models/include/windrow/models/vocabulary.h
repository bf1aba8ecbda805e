// Vocabularies: numbers for words, tags or characters. And the exception that readers of data throw.
//
//   windrow::Vocabulary words(sentences | std::views::join, 5);
//   std::int32_t number = words.number("cat");
#pragma once
#include "windrow/engine/requirements.h"

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <ranges>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "windrow/engine/error.h"

namespace windrow {

/// Thrown for malformed or missing data. The text is one line: the file, the line and column where known (in bytes,
/// from 1), what is wrong, and what was expected.
class DataError : public Error {
 public:
  using Error::Error;
};

/// Counts of words, in the order of their first occurrences. Empty words are not counted. A value.
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

  Numbers place_;                                             // index into counts_
  std::vector<std::pair<std::string, std::int64_t>> counts_;  // each word with its count
};

/// Maps words to numbers. A value, whose copies share memory; const members may be called from any thread. One that was
/// moved from can only be assigned to, or end.
class Vocabulary {
 public:
  /// The number of all unknown words; they share one, so that something can be learned about them.
  static constexpr std::int32_t unknown = 0;

  /// A vocabulary of the words that occur at least `at_least` times (values below 1 count as 1). They are numbered from
  /// 1 in the order of their first occurrences, so the same text gives the same numbers.
  Vocabulary(const WordCounts& counts, std::int64_t at_least);
  /// The same from any range of strings.
  template <std::ranges::input_range Words>
  requires std::convertible_to<std::ranges::range_reference_t<Words>, std::string_view> Vocabulary(
      Words&& words, std::int64_t at_least)
      : Vocabulary(counts_of(std::forward<Words>(words)), at_least) {}

  /// A vocabulary of these words, numbered from 1 on: what words() gave. Throws MisuseError for an empty word, or one
  /// that occurs twice.
  explicit Vocabulary(const std::vector<std::string>& words);

  /// In the order of their numbers.
  std::vector<std::string> words() const;
  /// The numbers are 0 to size() - 1, including that of unknown words.
  std::int32_t size() const { return static_cast<std::int32_t>(numbers_->size()) + 1; }
  /// The word's number, or `unknown`.
  std::int32_t number(std::string_view word) const;

 private:
  template <class Words>
  static WordCounts counts_of(Words&& words) {
    WordCounts counts;
    for (auto&& word : words) counts.add(word);
    return counts;
  }

  std::shared_ptr<const WordCounts::Numbers> numbers_;
};

/// Divides a word into its characters, that is, UTF-8 code points, so that an accented letter is one character however
/// many bytes it takes. A byte that is not part of a valid code point is a character by itself, so any text can be
/// divided.
std::vector<std::string_view> characters(std::string_view word);

}  // namespace windrow
