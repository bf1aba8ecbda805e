#include "program/commands/conllu_text.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "windrow/models/conllu.h"

namespace windrow::program {
namespace {

enum ConlluField : std::size_t { id_field, upos_field = 3, head_field = 6, relation_field, enhanced_field };

std::vector<std::string> conllu_fields(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream in(line);
  for (std::string field; std::getline(in, field, '\t');) fields.push_back(field);
  return fields;
}

std::string or_underscore(const std::string& text) { return text.empty() ? "_" : text; }

}  // namespace

bool begins_conllu(std::span<const std::string> lines) {
  const auto is_comment = [](const std::string& line) { return line.empty() || line.starts_with('#'); };
  const auto first = std::ranges::find_if_not(lines, is_comment);
  return first != lines.end() && is_conllu_line(*first);
}

void ConlluSentences::add(std::string line) {
  if (line.find_first_not_of(" \t") == std::string::npos) return end();
  has_words_ = has_words_ || !line.starts_with('#');
  open_ += std::move(line) + "\n";
}

void ConlluSentences::end() {
  if (has_words_) ended_.push_back(open_);
  open_.clear();
  has_words_ = false;
}

bool is_conllu_sentence(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return begins_conllu(lines);
}

std::string conllu_with_tree(const std::string& sentence, const std::vector<Prediction::Word>& words) {
  std::string text;
  auto word = words.begin();
  std::istringstream in(sentence);
  for (std::string line; std::getline(in, line);) {
    std::vector<std::string> fields = conllu_fields(line);
    // Comments, ranges such as 1-2, and empty nodes such as 2.1 are no words of the tree.
    if (line.starts_with('#') || fields[id_field].find_first_of("-.") != std::string::npos) {
      text += line + "\n";
      continue;
    }
    fields[upos_field] = or_underscore(word->tag);
    fields[head_field] = std::to_string(word->head);
    fields[relation_field] = or_underscore(word->relation);
    fields[enhanced_field] = "_";
    for (std::size_t i = 0; i < fields.size(); ++i) text += (i == 0 ? "" : "\t") + fields[i];
    text += "\n";
    ++word;
  }
  return text;
}

std::string words_of_conllu(const std::vector<Prediction::Word>& words) {
  std::string text;
  for (const Prediction::Word& word : words) text += (text.empty() ? "" : " ") + word.form;
  return text;
}

}  // namespace windrow::program
