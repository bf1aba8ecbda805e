// The conditional random field: against sums and maxima over all sequences of tags, and in the tagger.
#include "tests/batching/support.h"
#include "windrow/models/internal/tagger.h"
#include "windrow/models/layers.h"

namespace windrow::testing {
namespace {

using Tags = std::vector<std::int32_t>;

/// Calls visit(tags) for all sequences of that length.
template <class Visit>
void each_sequence(std::size_t length, std::int32_t tags, Visit visit) {
  Tags sequence(length, 0);
  for (std::size_t at = 0; at < length;) {
    visit(sequence);
    for (at = 0; at < length && ++sequence[at] == tags; ++at) sequence[at] = 0;
  }
}

/// The scores of a sequence, in double precision.
struct Scores {
  std::int32_t tags;
  Values emissions, transitions, start, stop;

  double of(const Tags& sequence) const {
    const auto at = [&](std::size_t row, std::int32_t column) {
      return row * static_cast<std::size_t>(tags) + static_cast<std::size_t>(column);
    };
    double sum = start[at(0, sequence.front())] + stop[at(0, sequence.back())];
    for (std::size_t t = 0; t < sequence.size(); ++t) {
      sum += emissions[at(t, sequence[t])];
      if (t > 0) sum += transitions[at(static_cast<std::size_t>(sequence[t - 1]), sequence[t])];
    }
    return sum;
  }
  double loss(const Tags& gold) const {
    double sum = 0;
    each_sequence(gold.size(), tags, [&](const Tags& sequence) { sum += std::exp(of(sequence)); });
    return std::log(sum) - of(gold);
  }
  Tags best(std::size_t length) const {
    Tags best;
    double top = -std::numeric_limits<double>::infinity();
    each_sequence(length, tags, [&](const Tags& sequence) {
      if (of(sequence) <= top) return;
      top = of(sequence);
      best = sequence;
    });
    return best;
  }
};

/// With values that cannot be missed, and a forbidden transition.
void draw(const Parameters& parameters) {
  draw_values(parameters, first_seed());
  const Tensor transitions = parameters.value(parameters.find("crf transitions"));
  Floats values = transitions.get();
  values[1] = -1e30f;
  transitions.set(values);
}

Values values_of(const Parameters& parameters, const std::string& name) {
  const std::vector<float> values = parameters.value(parameters.find(name)).get();
  return {values.begin(), values.end()};
}

/// The loss of a sentence in lazy expressions, and the best sequence.
struct LazyCrf {
  LazyGraph& graph;
  const Crf& crf;

  LazyExpr loss(const std::vector<LazyExpr>& emissions, const Tags& gold) const {
    LazyExpr alpha = crf.first(emissions[0]), score = crf.first_score(emissions[0], graph.index(gold[0]));
    for (std::size_t t = 1; t < gold.size(); ++t) {
      alpha = crf.next(alpha, emissions[t]);
      score = score + crf.next_score(emissions[t], graph.index(gold[t - 1]), graph.index(gold[t]));
    }
    return crf.log_partition(alpha) - (score + crf.last_score(graph.index(gold.back())));
  }
  Tags best(const std::vector<LazyExpr>& emissions) const {
    LazyExpr best = crf.best_first(emissions[0]);
    std::vector<LazyExpr> came_from = {LazyExpr()};
    for (std::size_t t = 1; t < emissions.size(); ++t) {
      came_from.push_back(crf.came_from(best));
      best = crf.best_next(best, emissions[t]);
    }
    Tags tags = {static_cast<std::int32_t>(crf.best_last(best).scalar())};
    for (std::size_t t = emissions.size(); --t > 0;) tags.push_back(Crf::before(came_from[t].value(), tags.back()));
    return {tags.rbegin(), tags.rend()};
  }
};

TEST(Crf, IsTheSumOverAllSequencesInLazyExpressions) {
  SCOPED_TRACE("seed " + std::to_string(first_seed()));
  constexpr std::int32_t tags = 3;
  OnHost s;
  Parameters& parameters = s.parameters;
  const Parameter table = parameters.add("emissions", 5, tags, Initial::zeros());
  const Crf crf(parameters, "crf", tags);
  draw(parameters);
  LazyGraph graph(s.host, parameters);
  for (const Tags& gold : {Tags{2}, Tags{0, 2}, Tags{1, 1, 2}, Tags{2, 0, 2, 1, 0}}) {
    SCOPED_TRACE("length " + std::to_string(gold.size()));
    graph.clear();
    std::vector<LazyExpr> emissions;
    for (std::int32_t t = 0; t < static_cast<std::int32_t>(gold.size()); ++t) {
      emissions.push_back(embedding(table, graph.index(t)));
    }
    const Scores scores{tags, values_of(parameters, "emissions"), values_of(parameters, "crf transitions"),
                        values_of(parameters, "crf start"), values_of(parameters, "crf stop")};
    const LazyCrf lazy{graph, crf};
    EXPECT_EQ(lazy.best(emissions), scores.best(gold.size()));
    const LazyExpr loss = lazy.loss(emissions, gold);
    EXPECT_NEAR(loss.scalar(), scores.loss(gold), 1e-5);
  }
}

/// Whose gradients networks_test compares with the oracle's.
TEST(Crf, TagsSentencesAsWhole) {
  SCOPED_TRACE("seed " + std::to_string(first_seed()));
  constexpr std::int32_t tags = 3;
  OnHost s;
  Parameters& parameters = s.parameters;
  const Tagger tagger(parameters, {.vocabulary = 5, .tags = tags, .embedding = 2, .hidden = 3, .crf = true});
  draw(parameters);
  const std::vector<TaggerInput> sentences = {
      {{1, 2, 3, 1}, {{}, {}, {}, {}}, {2, 0, 2, 1}}, {{2}, {{}}, {1}}, {}, {{4, 0}, {{}, {}}, {2, 2}}};
  const VertexFunction function = tagger.function();
  std::vector<GraphData> data;
  for (const TaggerInput& sentence : sentences) data.push_back(tagger.graph(sentence));
  const Minibatch minibatch = s.computed(function, data);
  const std::vector<float> logits = minibatch.output("logits").get();
  const Tags found = tagger.tags(minibatch);
  double loss = 0;
  std::size_t vertex = 0;  // of the minibatch
  for (std::size_t number = 0; number < sentences.size(); ++number) {
    const auto& kinds = data[number].kinds;
    const auto first = vertex + static_cast<std::size_t>(std::find(kinds.begin(), kinds.end(),
                                                                   static_cast<std::int32_t>(tagger.tag_kind())) -
                                                         kinds.begin());
    vertex += kinds.size();
    const std::size_t words = sentences[number].words.size();
    if (words == 0) continue;
    const auto row = logits.begin() + static_cast<std::ptrdiff_t>(first * tags);
    const Scores scores{tags,
                        {row, row + static_cast<std::ptrdiff_t>(words * tags)},
                        values_of(parameters, "crf transitions"),
                        values_of(parameters, "crf start"),
                        values_of(parameters, "crf stop")};
    loss += scores.loss(sentences[number].tags);
    EXPECT_EQ(Tags(found.begin() + static_cast<std::ptrdiff_t>(first),
                   found.begin() + static_cast<std::ptrdiff_t>(first + words)),
              scores.best(words));
  }
  EXPECT_NEAR(minibatch.loss(), loss, 1e-4);
}

}  // namespace
}  // namespace windrow::testing
