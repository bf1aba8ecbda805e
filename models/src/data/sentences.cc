#include "windrow/models/sentences.h"

#include "data/lines.h"

namespace windrow {
namespace {

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  for (const Token& token : tokens(line)) words.emplace_back(token.text);
  return words;
}

void append(const Token& token, const Lines& lines, TaggedSentence& sentence) {
  const std::string_view text = token.text;
  const std::size_t end = text.find('|', 1);
  if (end == std::string_view::npos) {
    const bool no_word = text[0] == '|';
    lines.refuse(token.at, shown(text) + " has no " + (no_word ? "word" : "tag") + "; expected word|TAG");
  }
  const std::string_view tag = text.substr(text.rfind('|') + 1);
  if (tag.empty()) lines.refuse(token.at, shown(text) + " has no tag; expected word|TAG");
  sentence.words.emplace_back(text.substr(0, end));
  sentence.tags.emplace_back(tag);
}

TaggedSentence tagged(const Lines& lines) {
  TaggedSentence sentence;
  for (const Token& token : tokens(lines.line())) append(token, lines, sentence);
  return sentence;
}

}  // namespace

std::vector<Sentence> read_sentences(std::istream& in, const std::string& name) {
  Lines lines(in, name);
  std::vector<Sentence> sentences;
  while (lines.next_with_text()) sentences.push_back(words_of(lines.line()));
  if (sentences.empty()) lines.refuse(TextPlace{}, "no sentence; expected one per line, such as no it was n't");
  return sentences;
}

std::vector<Sentence> read_sentences(const std::filesystem::path& file) {
  std::ifstream in = open_text(file, "sentences, one per line");
  return read_sentences(in, file.string());
}

std::vector<TaggedSentence> read_tagged_sentences(std::istream& in, const std::string& name) {
  Lines lines(in, name);
  std::vector<TaggedSentence> sentences;
  while (lines.next_with_text()) sentences.push_back(tagged(lines));
  if (sentences.empty()) lines.refuse(TextPlace{}, "no sentence; expected one per line, such as in|O Paris|I-LOC");
  return sentences;
}

std::vector<TaggedSentence> read_tagged_sentences(const std::filesystem::path& file) {
  std::ifstream in = open_text(file, "tagged sentences, one per line");
  return read_tagged_sentences(in, file.string());
}

}  // namespace windrow
