// Parallel text: sentences with their translations; read from two files or generated. And the score of translations.
//
//   train.de   wir sind hier .        line by line, as the data of shared translation tasks are after tokenisation,
//   train.en   we are here .          such as IWSLT 2014
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <array>
#include <cstdint>
#include <filesystem>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "windrow/models/datasets.h"

namespace windrow {

struct SentencePair {
  Sentence source = {}, target = {};
  friend bool operator==(const SentencePair&, const SentencePair&) = default;
};

/// Longer lines are refused: in text that is aligned by sentences, they are errors, such as missing line ends.
inline constexpr std::size_t most_words_of_sentence = 1000;

/// One side of parallel text. Errors mention `name`.
struct NamedText {
  std::istream& in;
  std::string name;
};

/// Reads line n of both texts as a pair, for all n. Words are separated by blanks; byte order marks are ignored, and so
/// are pairs of two blank lines. Pairs with one blank line, which occur in published text, are left out; `blank`, if
/// not null, gets their number. Throws DataError if a text cannot be read, if the texts have different numbers of
/// lines, if there is no sentence, and for a line that is not UTF-8 or too long.
std::vector<SentencePair> read_parallel_text(NamedText source, NamedText target, std::size_t* blank = nullptr);
/// The same from files, which may be compressed (.gz). Throws DataError also if one is not a regular file or cannot be
/// opened.
std::vector<SentencePair> read_parallel_text(const std::filesystem::path& source, const std::filesystem::path& target,
                                             std::size_t* blank = nullptr);

struct ParallelFiles {
  std::filesystem::path source, target;
};

/// Languages, as the endings of file names, such as "de"; empty for one that is not given.
struct LanguagePair {
  std::string source = {}, target = {};
};

/// The two files of a folder that are called `part` with a language as extension, such as train.de and train.en, which
/// may be compressed (train.de.gz). If the folder has none, `part` may also be a path, as shells complete it. If no
/// language is given, the source is the first one in alphabetical order. Throws DataError if there are not two such
/// files and not both languages are given, if a given language has no file, and for one language twice.
ParallelFiles find_parallel_text(const std::filesystem::path& folder, const std::string& part,
                                 const LanguagePair& languages = {});

struct ParallelText {
  std::string source, target;
};

/// Generates parallel text of two artificial languages, with 1 to 3 clauses in a sentence: 15 words on average, at most
/// 48. The translation follows from the source, but not word by word. The same seed gives the same text; the languages
/// are the same for all seeds.
///
///   source   article {adjective} noun [no] verb [noun phrase] [preposition noun phrase], joined by conjunctions
///   target   article noun {adjective} [noun phrase] [preposition noun phrase] verb [nix], joined by conjunctions
///
/// Words are translated one to one, by a lexicon of 300 nouns, 100 verbs and 100 adjectives (Zipf) and some function
/// words. In the target language, articles and adjectives agree with the gender and the number of the noun, and the
/// verb with the number of its subject. Genders belong to the lexicon, and are not visible in the source.
///
///            source                    target
///   noun     -t, plural -ts            -lo or -la by gender, plural -los or -las
///   adjective  -k                      -no, -na, -nos, -nas
///   verb     -r                        -te, plural -ten
///   article  "la", "na"                "il", "al" or "un", "an" by gender, plural with -s
ParallelText generate_parallel_text(std::size_t sentences, std::uint64_t seed);

/// Numbers for the words of a language, with marks for the begin and the end of sentences, for models that write
/// sentences word by word. A value; const members may be called from any thread.
class SentenceVocabulary {
 public:
  static constexpr std::int32_t unknown = Vocabulary::unknown, begin = 1, end = 2;

  explicit SentenceVocabulary(const Vocabulary& words) : numbers_(words), words_(words.words()) {}

  /// The numbers are 0 to size() - 1.
  std::int32_t size() const { return numbers_.size() + marks; }
  /// The numbers of words, without marks.
  std::vector<std::int32_t> numbers(const Sentence& sentence) const;
  /// The words of these numbers up to the first `end`, if there is one. Leaves out `begin`; unknown words are "<unk>".
  /// Precondition: the numbers are below size().
  Sentence words(std::span<const std::int32_t> numbers) const;

 private:
  static constexpr std::int32_t marks = 2;

  Vocabulary numbers_;
  std::vector<std::string> words_;  // by number, without unknown words
};

/// The words of each side that occur in it at least `at_least` times.
Vocabulary source_vocabulary(const std::vector<SentencePair>& pairs, std::int64_t at_least = 1);
Vocabulary target_vocabulary(const std::vector<SentencePair>& pairs, std::int64_t at_least = 1);

/// How similar translations are to reference translations, by the n-grams that they share (Papineni et al. 2002).
/// Accumulates the BLEU of a set of translations, each with one reference: n-grams of up to four words, counted over
/// the whole set. Words are compared as they are; nothing is tokenised or changed. A value.
///
/// Follows the definition of sacreBLEU (Post 2018) with its defaults: of the orders without a match, the first one has
/// the precision of half a match, the next one that of a quarter, and so on. The score is 0 if no word matches, or if
/// there is no n-gram of some order.
class Bleu {
 public:
  static constexpr std::size_t orders = 4;

  void add(const Sentence& translation, const Sentence& reference);

  /// The score, from 0 to 100.
  double score() const;
  /// The share of the translations' n-grams that occur in their references, from 0 to 1, for n = 1, 2, ...; smoothed as
  /// described. An n-gram counts at most as often as it occurs in the reference.
  std::array<double, orders> precisions() const;
  /// The factor that lowers the score if the translations are shorter than the references.
  double brevity_penalty() const;

 private:
  std::array<std::int64_t, orders> matches_ = {}, all_ = {};  // n-grams of the translations
  std::int64_t words_ = 0, reference_words_ = 0;
};

}  // namespace windrow
