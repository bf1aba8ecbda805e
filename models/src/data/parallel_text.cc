#include "windrow/models/parallel_text.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include "data/lines.h"
#include "data/named_files.h"
#include "data/open_data.h"

namespace windrow {
namespace {

/// All lines of a text, blank ones too.
class Side {
 public:
  explicit Side(NamedText from) : name_(std::move(from.name)) {
    Lines lines(from.in, name_);
    while (lines.next()) {
      parts_.push_back({text_.size(), lines.line().size(), lines.place(0)});
      text_ += lines.line();
    }
  }

  const std::string& name() const { return name_; }
  std::size_t size() const { return parts_.size(); }
  Line operator[](std::size_t i) const {
    const Part& part = parts_[i];
    return Line(name_, std::string_view(text_).substr(part.begin, part.size), part.place);
  }

 private:
  struct Part {
    std::size_t begin, size;
    TextPlace place;
  };

  const std::string name_;
  std::string text_;
  std::vector<Part> parts_;
};

/// Bytes of the code point at the begin of a text, which is not empty; 0 if it is none (RFC 3629).
std::size_t code_point(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t size = first < 0xc2 || first > 0xf4 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (size == 0 || size > text.size()) return 0;
  for (std::size_t i = 1; i < size; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xbf) return 0;
  }
  // Overlong forms, surrogates, and numbers above 0x10ffff.
  const unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  return byte(1) < low || byte(1) > high ? 0 : size;
}

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

void require_as_many(const Side& source, const Side& target) {
  if (source.size() == target.size()) return;
  const auto lines = [](const Side& side) {
    return side.name() + ": " + std::to_string(side.size()) + (side.size() == 1 ? " line" : " lines");
  };
  throw DataError(lines(source) + ", but " + lines(target) +
                  "; expected as many, since each line translates the one of its number");
}

/// The files of a part in all languages, where the part is named by its path without the language.
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

/// As for other data, a part lies in the folder, or is named by its path.
PartFiles part_files(const std::filesystem::path& data, const std::string& name) {
  PartFiles in_folder(data / name);
  if (!in_folder.found.empty()) return in_folder;
  PartFiles by_path{std::filesystem::path(name)};
  return by_path.found.empty() ? in_folder : by_path;
}

}  // namespace

std::vector<SentencePair> read_parallel_text(NamedText source_text, NamedText target_text, std::size_t* blank) {
  const Side source(std::move(source_text)), target(std::move(target_text));
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

}  // namespace windrow
