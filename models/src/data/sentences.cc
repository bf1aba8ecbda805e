#include <algorithm>

#include "data/lines.h"
#include "data/open_data.h"
#include "windrow/models/datasets.h"

namespace windrow {
namespace {

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  for (const Token& token : tokens(line)) words.emplace_back(token.text);
  return words;
}

/// The text before the last bar; empty if there is none.
std::string_view before_bar(std::string_view text) {
  const std::size_t bar = text.rfind('|');
  return bar == std::string_view::npos ? std::string_view() : text.substr(0, bar);
}

/// Whether the token divides, from the right, into a word, a part of speech and a tag.
bool has_part_of_speech(const Token& token) {
  const std::string_view word_and_part = before_bar(token.text);
  return !before_bar(word_and_part).empty() && !word_and_part.ends_with('|');
}

TaggedSentence tagged(const Line& line) {
  const std::vector<Token> all = tokens(line.text());
  const bool with_parts = std::ranges::all_of(all, has_part_of_speech);
  TaggedSentence sentence;
  for (const auto& [text, at] : all) {
    const bool no_bar = text.find('|') == std::string_view::npos;
    if (no_bar || text.ends_with('|')) {
      const bool no_word = text == "|";
      line.refuse(at, shown(text) + " has no " + (no_word ? "word" : "tag") + "; expected word|TAG");
    }
    std::string_view word = before_bar(text);
    if (word.empty()) line.refuse(at, shown(text) + " has no word; expected word|TAG");
    if (with_parts) word = before_bar(word);
    sentence.words.emplace_back(word);
    sentence.tags.emplace_back(text.substr(text.rfind('|') + 1));
  }
  return sentence;
}

}  // namespace

std::vector<Sentence> read_sentences(std::istream& in, const std::string& name) {
  return parse_lines(in, name, "no sentence; expected one per line, such as no it was n't",
                     [](const Line& line) { return words_of(line.text()); });
}

std::vector<Sentence> read_sentences(const std::filesystem::path& file) {
  const auto in = open_data(file, "sentences, one per line");
  return read_sentences(*in, file.string());
}

std::vector<TaggedSentence> read_tagged_sentences(std::istream& in, const std::string& name) {
  return parse_lines(in, name, "no sentence; expected one per line, such as in|O Paris|I-LOC", tagged);
}

std::vector<TaggedSentence> read_tagged_sentences(const std::filesystem::path& file) {
  const auto in = open_data(file, "tagged sentences, one per line");
  return read_tagged_sentences(*in, file.string());
}

}  // namespace windrow
