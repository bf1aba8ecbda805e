#include "windrow/models/beam_search.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>

namespace windrow {

struct Beam::Candidate {
  std::size_t from;
  std::int32_t word;
  double log_probability;
  /// Whether this one is better. The order is total, so that searches do not depend on the library.
  bool operator<(const Candidate& other) const {
    return std::tuple(-log_probability, from, word) < std::tuple(-other.log_probability, other.from, other.word);
  }
};

Beam::Beam(BeamSearchOptions options) : options_(options) {
  if (options.width < 1) throw MisuseError("beam search: width 0; expected at least 1");
  if (!std::isfinite(options.length_power) || options.length_power < 0) {
    throw MisuseError("beam search: length power " + std::to_string(options.length_power) +
                      "; expected a finite number, 0 or more");
  }
}

std::int32_t Beam::last_word(std::size_t i) const {
  return open_[i].words.empty() ? options_.begin : open_[i].words.back();
}

std::vector<std::size_t> Beam::advance(const std::vector<std::vector<float>>& log_probabilities) {
  const std::size_t width = options_.width - ended_.size();
  std::vector<Candidate> candidates;
  for (std::size_t i = 0; i < open_.size(); ++i) {
    const bool must_end = open_[i].words.size() >= options_.longest;
    std::vector<Candidate> own;
    for (std::size_t word = 0; word < log_probabilities[i].size(); ++word) {
      const auto number = static_cast<std::int32_t>(word);
      const float of_word = log_probabilities[i][word];
      if (std::isnan(of_word)) {
        throw Error("beam search: a log-probability is not a number; expected finite parameters and inputs");
      }
      if (number == options_.begin || (must_end && number != options_.end)) continue;
      own.push_back({i, number, open_[i].log_probability + static_cast<double>(of_word)});
    }
    const auto kept = static_cast<std::ptrdiff_t>(std::min(width, own.size()));
    std::partial_sort(own.begin(), own.begin() + kept, own.end());
    candidates.insert(candidates.end(), own.begin(), own.begin() + kept);
  }
  std::sort(candidates.begin(), candidates.end());
  candidates.resize(std::min(width, candidates.size()));
  std::vector<Hypothesis> open;
  std::vector<std::size_t> from;
  for (const Candidate& candidate : candidates) {
    Hypothesis next{open_[candidate.from].words, candidate.log_probability};
    if (candidate.word != options_.end) {
      next.words.push_back(candidate.word);
      open.push_back(std::move(next));
      from.push_back(candidate.from);
    } else {
      const auto length = static_cast<double>(next.words.size() + 1);
      next.score = next.log_probability / std::pow(length, options_.length_power);
      ended_.push_back(std::move(next));
    }
  }
  open_ = std::move(open);
  return from;
}

std::vector<Hypothesis> Beam::ended() const {
  std::vector<Hypothesis> sorted = ended_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Hypothesis& x, const Hypothesis& y) { return x.score > y.score; });
  return sorted;
}

}  // namespace windrow
