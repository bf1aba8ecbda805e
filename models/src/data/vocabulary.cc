#include "windrow/models/vocabulary.h"

#include <algorithm>
#include <string>

#include "windrow/engine/error.h"

namespace windrow {
namespace {

/// The number of bytes of a UTF-8 character with this first byte; 1 for bytes that begin no character.
std::size_t announced(unsigned char first) {
  if (first >= 0xc2 && first <= 0xdf) return 2;
  if (first >= 0xe0 && first <= 0xef) return 3;
  if (first >= 0xf0 && first <= 0xf4) return 4;
  return 1;
}

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

std::size_t length_of_first(std::string_view text) {
  const std::size_t length = announced(static_cast<unsigned char>(text[0]));
  if (length > text.size()) return 1;
  return std::all_of(text.begin() + 1, text.begin() + static_cast<std::ptrdiff_t>(length), continues) ? length : 1;
}

}  // namespace

void WordCounts::add(std::string_view word) {
  if (word.empty()) return;
  const auto found = place_.find(word);
  if (found != place_.end()) {
    ++counts_[static_cast<std::size_t>(found->second)].second;
    return;
  }
  place_.emplace(word, static_cast<std::int32_t>(counts_.size()));
  counts_.emplace_back(word, 1);
}

Vocabulary::Vocabulary(const WordCounts& counts, std::int64_t at_least) {
  WordCounts::Numbers numbers;
  for (const auto& [word, count] : counts.counts_) {
    if (count >= at_least) numbers.emplace(word, static_cast<std::int32_t>(numbers.size()) + 1);
  }
  numbers_ = std::make_shared<const WordCounts::Numbers>(std::move(numbers));
}

Vocabulary::Vocabulary(const std::vector<std::string>& words) {
  WordCounts::Numbers numbers;
  for (const std::string& word : words) {
    const auto number = static_cast<std::int32_t>(numbers.size()) + 1;
    if (!word.empty() && numbers.emplace(word, number).second) continue;
    throw MisuseError("vocabulary: '" + word + "' is word " + std::to_string(number) + "; expected words, each once");
  }
  numbers_ = std::make_shared<const WordCounts::Numbers>(std::move(numbers));
}

std::vector<std::string> Vocabulary::words() const {
  std::vector<std::string> words(numbers_->size());
  for (const auto& [word, number] : *numbers_) words[static_cast<std::size_t>(number) - 1] = word;
  return words;
}

std::int32_t Vocabulary::number(std::string_view word) const {
  const auto found = numbers_->find(word);
  return found == numbers_->end() ? unknown : found->second;
}

std::vector<std::string_view> characters(std::string_view word) {
  std::vector<std::string_view> result;
  while (!word.empty()) {
    result.push_back(word.substr(0, length_of_first(word)));
    word.remove_prefix(result.back().size());
  }
  return result;
}

}  // namespace windrow
