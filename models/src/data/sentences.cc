#include "windrow/models/sentences.h"

#include "data/lines.h"

namespace windrow {
namespace {

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  for (const Token& token : tokens(line)) words.emplace_back(token.text);
  return words;
}

void append(const Token& token, const Line& line, TaggedSentence& sentence) {
  const std::string_view text = token.text;
  const std::size_t end = text.find('|', 1);
  if (end == std::string_view::npos) {
    const bool no_word = text[0] == '|';
    line.refuse(token.at, shown(text) + " has no " + (no_word ? "word" : "tag") + "; expected word|TAG");
  }
  const std::string_view tag = text.substr(text.rfind('|') + 1);
  if (tag.empty()) line.refuse(token.at, shown(text) + " has no tag; expected word|TAG");
  sentence.words.emplace_back(text.substr(0, end));
  sentence.tags.emplace_back(tag);
}

TaggedSentence tagged(const Line& line) {
  TaggedSentence sentence;
  for (const Token& token : tokens(line.text())) append(token, line, sentence);
  return sentence;
}

}  // namespace

std::vector<Sentence> read_sentences(std::istream& in, const std::string& name) {
  return parse_lines(in, name, "no sentence; expected one per line, such as no it was n't",
                     [](const Line& line) { return words_of(line.text()); });
}

std::vector<Sentence> read_sentences(const std::filesystem::path& file) {
  std::ifstream in = open_text(file, "sentences, one per line");
  return read_sentences(in, file.string());
}

std::vector<TaggedSentence> read_tagged_sentences(std::istream& in, const std::string& name) {
  return parse_lines(in, name, "no sentence; expected one per line, such as in|O Paris|I-LOC", tagged);
}

std::vector<TaggedSentence> read_tagged_sentences(const std::filesystem::path& file) {
  std::ifstream in = open_text(file, "tagged sentences, one per line");
  return read_tagged_sentences(in, file.string());
}

}  // namespace windrow
