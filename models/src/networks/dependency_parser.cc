#include "windrow/models/dependency_parser.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "windrow/batching/runner.h"

namespace windrow {
namespace {

/// The strings of a column for all words of all sentences, without empty nodes.
std::vector<std::string_view> column(const std::vector<DependencySentence>& sentences,
                                     std::vector<std::string> DependencySentence::*strings) {
  std::vector<std::string_view> column;
  for (const DependencySentence& sentence : sentences) {
    const std::vector<std::string>& all = sentence.*strings;
    column.insert(column.end(), all.begin(), all.begin() + static_cast<std::ptrdiff_t>(sentence.heads.size()));
  }
  return column;
}

/// A number in [0, 1). Not std::uniform_real_distribution, which differs between libraries.
double share(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

struct Scored {
  std::size_t action = 0;
  float score = -std::numeric_limits<float>::infinity();

  void raise(std::size_t other, float score_of_other) {
    if (score_of_other > score) *this = {other, score_of_other};
  }
};

/// Calls body(number, action) for each legal action.
template <class Body>
void each_legal(const ArcHybrid& state, std::size_t actions, Body body) {
  bool legal[3];
  for (const Transition transition : all_transitions) {
    legal[static_cast<std::size_t>(transition)] = state.legal(transition);
  }
  for (std::size_t number = 0; number < actions; ++number) {
    const ParserAction action = Parser::action(number);
    if (legal[static_cast<std::size_t>(action.transition)]) body(number, action);
  }
}

void require_finite(float score) {
  if (!std::isfinite(score))
    throw NotFiniteError("parser: a score is not finite; expected finite scores, try a lower learning rate");
}

/// The best action that loses no arc, and the best of the other actions.
struct Judged {
  Scored right, wrong;
};

/// `heads` and `relations` are those of the sentence. An action that attaches a word is right only with the relation of
/// that word. If the word's head is lost already, no relation is better than another, and the same rule is used.
Judged judge(const ArcHybrid& state, const std::vector<float>& scores, std::span<const std::int32_t> heads,
             std::span<const std::int32_t> relations) {
  bool free[3] = {};
  for (const Transition transition : all_transitions) {
    free[static_cast<std::size_t>(transition)] = state.legal(transition) && state.cost(transition, heads) == 0;
  }
  const std::int32_t word = state.stack(0);
  const std::int32_t relation = word > 0 ? relations[static_cast<std::size_t>(word) - 1] : -1;  // else only shift
  Judged judged;
  each_legal(state, scores.size(), [&](std::size_t number, const ParserAction& action) {
    const bool right = action.transition == Transition::shift || action.relation == relation;
    (free[static_cast<std::size_t>(action.transition)] && right ? judged.right : judged.wrong)
        .raise(number, scores[number]);
  });
  require_finite(judged.right.score);
  return judged;
}

/// `roots` tells which relations are those of a root, by number; empty if they do not matter.
Scored best(const ArcHybrid& state, const std::vector<float>& scores, const std::vector<char>& roots) {
  Scored best;
  const bool to_root = state.next() == 0;  // a left transition attaches a word to the root
  each_legal(state, scores.size(), [&](std::size_t number, const ParserAction& action) {
    const bool attaches = action.transition != Transition::shift;
    const bool wants_root = to_root && action.transition == Transition::left;
    const bool fits =
        roots.empty() || !attaches || wants_root == (roots[static_cast<std::size_t>(action.relation)] != 0);
    if (fits) best.raise(number, scores[number]);
  });
  require_finite(best.score);
  return best;
}

}  // namespace

DependencyVocabularies DependencyVocabularies::of(const std::vector<DependencySentence>& treebank) {
  const std::vector<std::string_view> forms = column(treebank, &DependencySentence::forms);
  DependencyVocabularies made{.words = Vocabulary(forms, 1),
                              .tags = Vocabulary(column(treebank, &DependencySentence::tags), 1),
                              .relations = Vocabulary(column(treebank, &DependencySentence::relations), 1),
                              .seen = {}};
  made.seen.assign(static_cast<std::size_t>(made.words.size()), 0);
  for (const std::string_view word : forms) ++made.seen[static_cast<std::size_t>(made.words.number(word))];
  return made;
}

DependencyParser::DependencyParser(Parameters& parameters, DependencyVocabularies vocabularies,
                                   DependencyParserOptions options)
    : options_(options),
      vocabularies_(std::move(vocabularies)),
      relation_names_(vocabularies_.relations.words()),
      parser_(parameters, {.words = vocabularies_.words.size(),
                           .tags = vocabularies_.tags.size(),
                           .relations = vocabularies_.relations.size() - 1,
                           .word = options.word,
                           .tag = options.tag,
                           .hidden = options.hidden,
                           .scorer = options.scorer,
                           .layers = static_cast<int>(options.layers)}) {
  for (const std::string& name : relation_names_) roots_.push_back(name == "root" || name.starts_with("root:"));
  const auto roots = static_cast<std::size_t>(std::ranges::count(roots_, 1));
  if (roots == 0 || roots == roots_.size()) roots_.clear();  // otherwise some words would have no allowed relation
  if (vocabularies_.seen.size() != static_cast<std::size_t>(vocabularies_.words.size())) {
    throw MisuseError("parser: " + std::to_string(vocabularies_.seen.size()) + " counts of words; expected " +
                      std::to_string(vocabularies_.words.size()));
  }
}

DependencyParser::Sentence DependencyParser::numbered(const DependencySentence& sentence) const {
  Sentence result;
  result.heads = sentence.heads;
  for (std::size_t i = 0; i < sentence.heads.size(); ++i) {
    result.words.push_back(vocabularies_.words.number(sentence.forms[i]));
    result.tags.push_back(vocabularies_.tags.number(sentence.tags[i]));
    result.relations.push_back(vocabularies_.relations.number(sentence.relations[i]) - 1);
  }
  return result;
}

std::vector<std::int32_t> DependencyParser::partly_forgotten(std::vector<std::int32_t> words,
                                                             std::mt19937_64& random) const {
  for (std::int32_t& word : words) {
    const auto times = static_cast<double>(vocabularies_.seen[static_cast<std::size_t>(word)]);
    if (share(random) * (options_.forget + times) < options_.forget) word = Vocabulary::unknown;
  }
  return words;
}

namespace {

/// The scores of a step, and a wrong action: its score does not lie below that of the right action by the margin.
struct TooNear {
  LazyExpr scores;
  std::size_t wrong, right;
};

LazyExpr difference(LazyGraph& graph, const TooNear& of) {
  const auto score = [&](std::size_t action) {
    return pick(of.scores, graph.index(static_cast<std::int32_t>(action)));
  };
  return score(of.wrong) - score(of.right);
}

}  // namespace

/// Losses are recorded at the end. A loss recorded after its step would be computed with the next step, and computed
/// again in backward().
LazyTask<DependencyParser::Learned> DependencyParser::learn(LazyGraph& graph, const Sentence& sentence,
                                                            std::uint64_t seed) const {
  std::mt19937_64 random(seed);
  const Parser::Sentence read = parser_.read(graph, partly_forgotten(sentence.words, random), sentence.tags);
  Learned learned{};
  std::vector<TooNear> too_near;
  ArcHybrid state(static_cast<std::int32_t>(sentence.words.size()));
  state.apply(Transition::shift);  // the only legal transition
  while (!state.final()) {
    const LazyExpr scores = parser_.scores(read, state);
    const std::vector<float> values = co_await value(scores);
    const auto [right, wrong] = judge(state, values, sentence.heads, sentence.relations);
    const float margin = right.score - wrong.score;
    if (margin < 1) {
      too_near.push_back({scores, wrong.action, right.action});
      learned.loss += 1 - static_cast<double>(margin);
    }
    const bool follow_wrong = margin < 0 || (margin < 1 && share(random) < options_.explore);
    state.apply(Parser::action((follow_wrong ? wrong : right).action).transition);
  }
  for (const TooNear& one : too_near) learned.losses.push_back(difference(graph, one));
  co_return learned;
}

LazyTask<DependencyTree> DependencyParser::parse(LazyGraph& graph, Sentence sentence) const {
  if (sentence.words.empty()) co_return DependencyTree{};
  const Parser::Sentence read = parser_.read(graph, sentence.words, sentence.tags);
  DependencyTree tree;
  tree.relations.resize(sentence.words.size());
  ArcHybrid state(static_cast<std::int32_t>(sentence.words.size()));
  state.apply(Transition::shift);
  while (!state.final()) {
    const std::vector<float> scores = co_await value(parser_.scores(read, state));
    const ParserAction action = Parser::action(best(state, scores, roots_).action);
    if (action.transition != Transition::shift) {
      tree.relations[static_cast<std::size_t>(state.stack(0)) - 1] =
          relation_names_[static_cast<std::size_t>(action.relation)];
    }
    state.apply(action.transition);
  }
  tree.heads = state.heads();
  co_return tree;
}

std::vector<DependencyTree> DependencyParser::parse(LazyGraph& graph,
                                                    const std::vector<DependencySentence>& sentences) const {
  std::vector<LazyTask<DependencyTree>> tasks;
  for (const DependencySentence& sentence : sentences) tasks.push_back(parse(graph, numbered(sentence)));
  std::vector<DependencyTree> trees = run(graph, std::move(tasks));
  graph.clear();
  return trees;
}

std::int64_t DependencyParser::steps(std::int64_t words) const {
  return 2 * options_.layers * (words + 1) + 2 * words - 1;
}

double DependencyParser::flops(std::int64_t words) const {
  const auto h = static_cast<double>(options_.hidden), s = static_cast<double>(options_.scorer);
  const auto tokens = static_cast<double>(words + 1), actions = static_cast<double>(parser_.actions());
  double flops = 16 * h * s * tokens + 2 * s * actions * (2 * static_cast<double>(words) - 1);
  for (Index layer = 0; layer < options_.layers; ++layer) {
    const double in = layer == 0 ? static_cast<double>(options_.word + options_.tag) : 2 * h;
    flops += 16 * h * (in * tokens + h * (tokens - 1));
  }
  return flops;
}

}  // namespace windrow
