// Sentences in CoNLL-U as texts that a parser predicts for.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "windrow/models/workload.h"

namespace windrow::program {

/// Whether an input that begins with these lines is CoNLL-U.
bool begins_conllu(std::span<const std::string> lines);

/// Collects lines to sentences, which blank lines separate.
class ConlluSentences {
 public:
  void add(std::string line);
  /// After the last line.
  void end();
  /// The sentences that have ended and were not taken.
  std::vector<std::string>& ended() { return ended_; }

 private:
  std::string open_;
  bool has_words_ = false;
  std::vector<std::string> ended_;
};

/// Whether the text of a prediction is a sentence in CoNLL-U, and not a line of words.
bool is_conllu_sentence(const std::string& text);
/// The sentence with these heads and relations, and with the tags that it lacks. Enhanced dependencies of words are
/// removed, because they belong to another tree. All other lines, such as those of empty nodes, are kept.
std::string conllu_with_tree(const std::string& sentence, const std::vector<Prediction::Word>& words);
/// The words, for output that shows the text of an input.
std::string words_of_conllu(const std::vector<Prediction::Word>& words);

}  // namespace windrow::program
