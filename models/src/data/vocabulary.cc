#include <algorithm>
#include <string>

#include "data/lines.h"
#include "windrow/engine/error.h"
#include "windrow/models/datasets.h"
#include "windrow/training/record.h"
#include "windrow/training/tensor_file.h"

namespace windrow {
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

Record Vocabulary::record() const {
  const std::vector<std::string> all = words();
  return Record().set("words", RecordValue::List(all.begin(), all.end()));
}

Vocabulary Vocabulary::of(const Record& record) {
  std::vector<std::string> words;
  for (const RecordValue& word : record.at("words").list()) words.push_back(word.text());
  try {
    return Vocabulary(words);
  } catch (const MisuseError& error) {
    throw FileError(error.what());
  }
}

std::int32_t Vocabulary::number(std::string_view word) const {
  const auto found = numbers_->find(word);
  return found == numbers_->end() ? unknown : found->second;
}

std::vector<std::string_view> characters(std::string_view word) {
  std::vector<std::string_view> result;
  while (!word.empty()) {
    result.push_back(word.substr(0, std::max<std::size_t>(code_point(word), 1)));
    word.remove_prefix(result.back().size());
  }
  return result;
}

}  // namespace windrow
