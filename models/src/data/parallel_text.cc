#include "windrow/models/internal/parallel_text.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <ranges>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/lines.h"
#include "data/open_data.h"

namespace windrow {
namespace {

void require_utf8(const Line& line) {
  const std::string_view text = line.text();
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = code_point(text.substr(at));
    if (size == 0) line.refuse(at, shown(text[at]) + " begins no character of UTF-8; expected text in UTF-8");
    at += size;
  }
}

Sentence words_of(const Line& line) {
  require_utf8(line);
  const std::vector<Token> all = tokens(line.text());
  if (all.size() > most_words_of_sentence) {
    line.refuse(all[most_words_of_sentence].at, std::to_string(all.size()) + " words in a line; expected at most " +
                                                    std::to_string(most_words_of_sentence));
  }
  Sentence words;
  for (const Token& token : all) words.emplace_back(token.text);
  return words;
}

void require_as_many(const TextLines& source, const TextLines& target) {
  if (source.size() == target.size()) return;
  const auto lines = [](const TextLines& side) {
    return side.name() + ": " + std::to_string(side.size()) + (side.size() == 1 ? " line" : " lines");
  };
  throw DataError(lines(source) + ", but " + lines(target) +
                  "; expected as many, since each line translates the one of its number");
}

/// The files of a part in all languages; the part is given by its path without the language.
struct PartFiles {
  std::filesystem::path folder;
  std::string part;
  std::vector<std::filesystem::path> found;

  explicit PartFiles(const std::filesystem::path& path)
      : folder(path.has_parent_path() ? path.parent_path() : "."), part(path.filename().string()) {
    found = files_named(folder, part + ".*");
    std::erase_if(found, [&](const std::filesystem::path& file) {
      std::error_code ignored;
      return uncompressed_name(file).stem() != part || !std::filesystem::is_regular_file(file, ignored);
    });
  }
};

/// As for other data, a part is a name in the folder, or a path.
PartFiles part_files(const std::filesystem::path& data, const std::string& name) {
  PartFiles in_folder(data / name);
  if (!in_folder.found.empty()) return in_folder;
  PartFiles by_path{std::filesystem::path(name)};
  return by_path.found.empty() ? in_folder : by_path;
}

}  // namespace

std::vector<SentencePair> read_parallel_text(NamedText source_text, NamedText target_text, std::size_t* blank) {
  const TextLines source(source_text.in, source_text.name, TextLines::Blank::kept),
      target(target_text.in, target_text.name, TextLines::Blank::kept);
  require_as_many(source, target);
  std::vector<SentencePair> pairs = parallel_map(source.size(), [&](std::size_t i) {
    return SentencePair{words_of(source[i]), words_of(target[i])};
  });
  const auto on_one_side =
      std::erase_if(pairs, [](const SentencePair& pair) { return pair.source.empty() != pair.target.empty(); });
  if (blank != nullptr) *blank = on_one_side;
  std::erase_if(pairs, [](const SentencePair& pair) { return pair.source.empty(); });
  if (pairs.empty()) throw DataError(source.name() + ":1:1: no sentence; expected one per line");
  return pairs;
}

std::vector<SentencePair> read_parallel_text(const std::filesystem::path& source, const std::filesystem::path& target,
                                             std::size_t* blank) {
  const auto from = open_data(source, "sentences, one per line"), to = open_data(target, "sentences, one per line");
  return read_parallel_text(NamedText{*from, source.string()}, NamedText{*to, target.string()}, blank);
}

ParallelFiles find_parallel_text(const std::filesystem::path& data, const std::string& name,
                                 const LanguagePair& languages) {
  const PartFiles files = part_files(data, name);
  const std::filesystem::path& folder = files.folder;
  const std::string& part = files.part;
  const std::vector<std::filesystem::path>& found = files.found;
  const auto& [source, target] = languages;
  const bool both = !source.empty() && !target.empty();
  if (found.size() < 2 || (found.size() > 2 && !both)) {
    throw DataError(folder.string() + ": " + std::to_string(found.size()) + (found.size() == 1 ? " file " : " files ") +
                    part + ".LANGUAGE; expected two, " +
                    (found.size() > 2 ? "or the names of the source and the target language"
                                      : "such as " + part + ".de and " + part + ".en"));
  }
  const auto of = [&](const std::string& language) {
    const auto file = std::ranges::find(found, folder / (part + "." + language), uncompressed_name);
    if (file != found.end()) return *file;
    std::string there;
    for (const auto& path : found) there += (there.empty() ? "" : ", ") + path.filename().string();
    throw DataError(folder.string() + ": no " + part + "." + language + "; expected one of " + there);
  };
  const auto other = [&](const std::string& language) { return found[of(language) == found[0] ? 1 : 0]; };
  if (both && source == target) {
    throw DataError(folder.string() + ": '" + source + "' as source and target; expected two languages");
  }
  if (both) return {of(source), of(target)};
  if (!source.empty()) return {of(source), other(source)};
  if (!target.empty()) return {other(target), of(target)};
  return {found[0], found[1]};
}

std::vector<std::int32_t> SentenceVocabulary::numbers(const Sentence& sentence) const {
  std::vector<std::int32_t> result;
  for (const std::string& word : sentence) {
    const std::int32_t number = numbers_.number(word);
    result.push_back(number == unknown ? unknown : number + marks);
  }
  return result;
}

Sentence SentenceVocabulary::words(std::span<const std::int32_t> numbers) const {
  Sentence result;
  for (const std::int32_t number : numbers) {
    if (number == end) break;
    if (number == begin) continue;
    result.push_back(number == unknown ? "<unk>" : words_.at(static_cast<std::size_t>(number - marks - 1)));
  }
  return result;
}

Vocabulary source_vocabulary(const std::vector<SentencePair>& pairs, std::int64_t at_least) {
  return Vocabulary(pairs | std::views::transform(&SentencePair::source) | std::views::join, at_least);
}

Vocabulary target_vocabulary(const std::vector<SentencePair>& pairs, std::int64_t at_least) {
  return Vocabulary(pairs | std::views::transform(&SentencePair::target) | std::views::join, at_least);
}

namespace {

using Counts = std::unordered_map<std::string_view, std::int32_t>;
using Ngram = std::array<std::int32_t, Bleu::orders>;

/// The n-grams of a sentence, sorted.
std::vector<Ngram> ngrams(const Sentence& sentence, std::size_t n, Counts& numbers) {
  std::vector<Ngram> result;
  for (std::size_t i = 0; i + n <= sentence.size(); ++i) {
    Ngram& ngram = result.emplace_back();
    for (std::size_t k = 0; k < n; ++k) {
      ngram[k] = numbers.emplace(sentence[i + k], static_cast<std::int32_t>(numbers.size())).first->second;
    }
  }
  std::sort(result.begin(), result.end());
  return result;
}

}  // namespace

void Bleu::add(const Sentence& translation, const Sentence& reference) {
  words_ += static_cast<std::int64_t>(translation.size());
  reference_words_ += static_cast<std::int64_t>(reference.size());
  Counts numbers;
  for (std::size_t n = 1; n <= orders; ++n) {
    const std::vector<Ngram> given = ngrams(translation, n, numbers), expected = ngrams(reference, n, numbers);
    std::vector<Ngram> both;  // each n-gram as often as in the sentence that has fewer of it
    std::set_intersection(given.begin(), given.end(), expected.begin(), expected.end(), std::back_inserter(both));
    matches_[n - 1] += static_cast<std::int64_t>(both.size());
    all_[n - 1] += static_cast<std::int64_t>(given.size());
  }
}

std::array<double, Bleu::orders> Bleu::precisions() const {
  std::array<double, orders> result = {};
  if (matches_[0] == 0) return result;
  double assumed = 1;
  for (std::size_t i = 0; i < orders && all_[i] > 0; ++i) {
    const double matches = matches_[i] > 0 ? static_cast<double>(matches_[i]) : assumed /= 2;
    result[i] = matches / static_cast<double>(all_[i]);
  }
  return result;
}

double Bleu::brevity_penalty() const {
  if (words_ >= reference_words_) return 1;
  return words_ == 0 ? 0 : std::exp(1 - static_cast<double>(reference_words_) / static_cast<double>(words_));
}

double Bleu::score() const {
  double logarithms = 0;
  for (const double precision : precisions()) logarithms += std::log(precision);  // of 0: minus infinity
  return 100 * brevity_penalty() * std::exp(logarithms / orders);
}

}  // namespace windrow
