#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "networks/cell_vertex.h"
#include "windrow/models/language_model.h"
#include "windrow/ops/internal/philox.h"

namespace windrow {
namespace {

/// A step: its states, and what `read_out` makes of the logits of the next word.
template <class ReadOut>
LazyCell language_step(LazyGraph& graph, const char* name, const LanguageModel& model,
                       const std::vector<std::string>& indices, ReadOut read_out) {
  return graph.cell(name, [=, h = model.sizes().hidden](CellBody& body) {
    CellVertex v(body, {.gathered = {{"h", h}, {"h cell", h}}, .indices = indices});
    const Expr logits = model.logits(v);
    v.results({"h", "h cell"});
    body.result(read_out(v, logits));
  });
}

/// A number in [0, 1), for a step of a text.
double share(std::uint64_t seed, std::uint64_t text, std::uint32_t step) {
  const PhiloxCounter words =
      philox({static_cast<std::uint32_t>(text), static_cast<std::uint32_t>(text >> 32), step, 0}, philox_key(seed));
  return static_cast<double>((std::uint64_t{words[0]} << 32 | words[1]) >> 11) * 0x1p-53;
}

/// The word, from number `first` to `words` - 1, at this share of the cumulative probabilities.
std::int32_t word_at(double share, const std::vector<float>& log_probabilities, std::int32_t first, std::int32_t words,
                     double temperature) {
  const auto begin = log_probabilities.begin() + first, end = log_probabilities.begin() + words;
  const auto best = std::max_element(begin, end);
  if (std::any_of(begin, end, [](float x) { return std::isnan(x); }) || !std::isfinite(*best)) {
    throw Error("language model: a log-probability is not a number; expected finite parameters");
  }
  if (temperature == 0) return first + static_cast<std::int32_t>(best - begin);
  std::vector<double> up_to;  // cumulative sums of the probabilities, up to a factor
  double sum = 0;
  for (auto x = begin; x != end; ++x) {
    up_to.push_back(sum += std::exp((static_cast<double>(*x) - static_cast<double>(*best)) / temperature));
  }
  const auto found = std::upper_bound(up_to.begin(), up_to.end(), share * sum);
  return first + static_cast<std::int32_t>(std::min(found, up_to.end() - 1) - up_to.begin());
}

}  // namespace

SentenceModel::SentenceModel(const Device& device, Parameters& parameters, const LanguageModel& model,
                             std::int32_t words)
    : model_(model.without_dropout()),
      words_(words),
      graph_(device, parameters, {.use = LazyOptions::For::inference}),
      score_(language_step(graph_, "score", model_, {"word", "label"},
                           [](const CellVertex& v, const Expr& logits) {
                             return softmax_cross_entropy(logits, v.pull_index("label"));
                           })),
      next_(language_step(graph_, "next word", model_, {"word"},
                          [](const CellVertex&, const Expr& logits) { return log_softmax(logits); })) {
  if (words <= end || words > model.sizes().vocabulary) {
    throw MisuseError("sentence model: " + std::to_string(words) + " words; expected 2 to " +
                      std::to_string(model.sizes().vocabulary));
  }
}

std::vector<double> SentenceModel::score(std::span<const Words> sentences) {
  graph_.clear();  // removes what a failed call may have left
  std::vector<std::vector<LazyExpr>> losses;
  for (const Words& sentence : sentences) {
    std::vector<LazyExpr>& own = losses.emplace_back();
    LazyExpr hidden, cell;
    std::int32_t last = end;
    const auto predict = [&](std::int32_t word) {
      auto [next, next_cell, loss] = score_.call<3>({hidden, cell}, {graph_.index(last), graph_.index(word)});
      hidden = std::move(next);
      cell = std::move(next_cell);
      own.push_back(std::move(loss));
      last = word;
    };
    for (const std::int32_t word : sentence) predict(word);
    predict(end);
  }
  std::vector<double> log_probabilities;
  for (const std::vector<LazyExpr>& own : losses) {
    double& sum = log_probabilities.emplace_back(0);
    for (const LazyExpr& loss : own) sum -= static_cast<double>(loss.scalar());
  }
  losses.clear();
  graph_.clear();
  return log_probabilities;
}

SentenceModel::State SentenceModel::read(const State& before, std::int32_t word) {
  auto [hidden, cell, next] = next_.call<3>({before.hidden, before.cell}, {graph_.index(word)});
  return {std::move(hidden), std::move(cell), std::move(next)};
}

LazyTask<SentenceModel::Words> SentenceModel::write(State state, SamplingOptions options, std::size_t text) {
  Words words;
  while (words.size() < options.longest) {
    if (!words.empty()) state = read(state, words.back());
    const std::vector<float> next = co_await value(state.next);
    const double at = share(options.seed, text, static_cast<std::uint32_t>(words.size()));
    const std::int32_t word = word_at(at, next, end, words_, options.temperature);
    if (word == end) break;
    words.push_back(word);
  }
  co_return words;
}

std::vector<SentenceModel::Words> SentenceModel::sample(const Words& start, const SamplingOptions& options) {
  if (!std::isfinite(options.temperature) || options.temperature < 0) {
    throw MisuseError("sentence model: temperature " + std::to_string(options.temperature) +
                      "; expected a finite number, 0 or more");
  }
  graph_.clear();
  State state = read({}, end);
  for (const std::int32_t word : start) state = read(state, word);
  std::vector<LazyTask<Words>> tasks;
  for (std::size_t i = 0; i < options.texts; ++i) tasks.push_back(write(state, options, options.first + i));
  state = {};
  std::vector<Words> drawn = run(graph_, std::move(tasks));
  graph_.clear();
  return drawn;
}

}  // namespace windrow
