#include "windrow/models/bleu.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace windrow {
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
    std::vector<Ngram> both;  // as often as in the one that has fewer
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
