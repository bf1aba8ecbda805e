#include "windrow/models/parser_trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

namespace windrow {
namespace {

ParserTrainerOptions checked(ParserTrainerOptions options) {
  constexpr Index most = 1 << 24;
  const auto refuse = [](const std::string& what) { throw MisuseError("parser trainer: " + what); };
  const auto check = [&](const char* name, Index value) {
    if (value >= 1 && value <= most) return;
    refuse(name + (" " + std::to_string(value)) + "; expected 1 to " + std::to_string(most));
  };
  const auto check_positive = [&](const char* name, double value) {
    if (std::isfinite(value) && value >= 0) return;
    refuse(name + (" " + std::to_string(value)) + "; expected a number, 0 or more");
  };
  check("word", options.word);
  check("tag", options.tag);
  check("hidden", options.hidden);
  check("scorer", options.scorer);
  check("layers", options.layers);
  check("batch", static_cast<Index>(options.batch));
  check_positive("rate", options.rate);
  check_positive("forget", options.forget);
  check_positive("explore", options.explore);
  return options;
}

/// All strings of that column, word after word, without empty nodes.
std::vector<std::string_view> column(const std::vector<DependencySentence>& sentences,
                                     std::vector<std::string> DependencySentence::*strings) {
  std::vector<std::string_view> column;
  for (const DependencySentence& sentence : sentences) {
    const std::vector<std::string>& all = sentence.*strings;
    column.insert(column.end(), all.begin(), all.begin() + static_cast<std::ptrdiff_t>(sentence.heads.size()));
  }
  return column;
}

/// From 0 to below 1. Not std::uniform_real_distribution, which differs between libraries.
double share(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

struct Scored {
  std::size_t action = 0;
  float score = -std::numeric_limits<float>::infinity();

  void raise(std::size_t other, float score_of_other) {
    if (score_of_other > score) *this = {other, score_of_other};
  }
};

/// Calls `body` with the number of each action that is legal, and with its transition.
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
  if (!std::isfinite(score)) throw Error("parser trainer: a score is not finite; expected a lower rate");
}

/// The best action that loses no more arcs, and the best of the others.
struct Judged {
  Scored right, wrong;
};

/// `heads` and `relations` are the sentence's. The relation is that of the word which gets a head; where that head is
/// wrong anyway, the same is as good as any.
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

Scored best(const ArcHybrid& state, const std::vector<float>& scores) {
  Scored best;
  each_legal(state, scores.size(),
             [&](std::size_t number, const ParserAction&) { best.raise(number, scores[number]); });
  require_finite(best.score);
  return best;
}

}  // namespace

ParserTrainer::ParserTrainer(const Device& device, const std::vector<DependencySentence>& sentences,
                             ParserTrainerOptions options)
    : device_(device),
      options_(checked(options)),
      words_(column(sentences, &DependencySentence::forms), 1),
      tags_(column(sentences, &DependencySentence::tags), 1),
      relations_(column(sentences, &DependencySentence::relations), 1),
      seen_(static_cast<std::size_t>(words_.size()), 0),
      parameters_(device, options.seed),
      parser_(parameters_, {.words = words_.size(),
                            .tags = tags_.size(),
                            .relations = relations_.size() - 1,
                            .word = options.word,
                            .tag = options.tag,
                            .hidden = options.hidden,
                            .scorer = options.scorer,
                            .layers = options.layers}),
      training_(device, parameters_, {.schedule = options.schedule}),
      parsing_(device, parameters_, {.use = LazyOptions::For::inference, .schedule = options.schedule}),
      random_(options.seed) {
  for (const std::string_view relation : column(sentences, &DependencySentence::relations)) {
    const auto number = static_cast<std::size_t>(relations_.number(relation));
    if (number > relation_names_.size()) relation_names_.emplace_back(relation);
  }
  for (const DependencySentence& sentence : sentences) {
    if (sentence.heads.empty() || !projective(sentence)) continue;
    sentences_.push_back(numbered(sentence));
    for (std::int32_t word : sentences_.back().words) ++seen_[static_cast<std::size_t>(word)];
  }
  if (sentences_.empty()) throw MisuseError("parser trainer: no projective sentences; expected one or more");
  for (const Sentence& sentence : sentences_) order_.push_back(&sentence);
  next_ = order_.size();
}

/// Relations by number less one, so that -1 is unknown.
ParserTrainer::Sentence ParserTrainer::numbered(const DependencySentence& sentence) const {
  Sentence result;
  result.heads = sentence.heads;
  for (std::size_t i = 0; i < sentence.heads.size(); ++i) {
    result.words.push_back(words_.number(sentence.forms[i]));
    result.tags.push_back(tags_.number(sentence.tags[i]));
    result.relations.push_back(relations_.number(sentence.relations[i]) - 1);
  }
  return result;
}

std::vector<std::int32_t> ParserTrainer::partly_forgotten(std::vector<std::int32_t> words,
                                                          std::mt19937_64& random) const {
  for (std::int32_t& word : words) {
    const auto times = static_cast<double>(seen_[static_cast<std::size_t>(word)]);
    if (share(random) * (options_.forget + times) < options_.forget) word = Vocabulary::unknown;
  }
  return words;
}

LazyTask<ParserTrainer::Learned> ParserTrainer::learn(const Sentence& sentence, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const Parser::Sentence read = parser_.read(training_, partly_forgotten(sentence.words, random), sentence.tags);
  Learned learned{};
  ArcHybrid state(static_cast<std::int32_t>(sentence.words.size()));
  state.apply(Transition::shift);  // there is nothing else to do
  while (!state.final()) {
    const LazyExpr scores = parser_.scores(read, state);
    const std::vector<float> values = co_await value(scores);
    const auto [right, wrong] = judge(state, values, sentence.heads, sentence.relations);
    const float margin = right.score - wrong.score;
    if (margin < 1) {
      learned.losses.push_back(pick(scores, training_.index(static_cast<std::int32_t>(wrong.action))) -
                               pick(scores, training_.index(static_cast<std::int32_t>(right.action))));
      learned.loss += 1 - static_cast<double>(margin);
    }
    const bool follow_wrong = margin < 0 || (margin < 1 && share(random) < options_.explore);
    state.apply(Parser::action((follow_wrong ? wrong : right).action).transition);
  }
  co_return learned;
}

LazyTask<DependencyTree> ParserTrainer::parse(Sentence sentence) {
  if (sentence.words.empty()) co_return DependencyTree{};
  const Parser::Sentence read = parser_.read(parsing_, sentence.words, sentence.tags);
  DependencyTree tree;
  tree.relations.resize(sentence.words.size());
  ArcHybrid state(static_cast<std::int32_t>(sentence.words.size()));
  state.apply(Transition::shift);
  while (!state.final()) {
    const std::vector<float> scores = co_await value(parser_.scores(read, state));
    const ParserAction action = Parser::action(best(state, scores).action);
    if (action.transition != Transition::shift) {
      tree.relations[static_cast<std::size_t>(state.stack(0)) - 1] =
          relation_names_[static_cast<std::size_t>(action.relation)];
    }
    state.apply(action.transition);
  }
  tree.heads = state.heads();
  co_return tree;
}

void ParserTrainer::begin_round() {
  // Not std::shuffle, which differs between libraries.
  for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random_() % i]);
  next_ = 0;
}

ParserTrainer::Pass ParserTrainer::train(std::size_t sentences) {
  const auto began = std::chrono::steady_clock::now();
  Pass pass;
  while (pass.sentences < sentences) {
    if (next_ == order_.size()) begin_round();
    const std::size_t begin = next_;
    next_ = std::min(next_ + std::min(sentences - pass.sentences, options_.batch), order_.size());
    std::vector<LazyTask<Learned>> tasks;
    std::size_t words = 0;
    for (std::size_t i = begin; i < next_; ++i) {
      tasks.push_back(learn(*order_[i], random_()));
      words += order_[i]->words.size();
    }
    std::vector<LazyExpr> losses;
    for (Learned& learned : run(training_, std::move(tasks))) {
      pass.loss += learned.loss;
      losses.insert(losses.end(), learned.losses.begin(), learned.losses.end());
    }
    if (!losses.empty()) {
      training_.backward(losses);
      parameters_.sgd(options_.rate / static_cast<double>(words));
    }
    training_.clear();
    pass.sentences += next_ - begin;
    pass.words += static_cast<std::int64_t>(words);
  }
  pass.loss /= static_cast<double>(std::max<std::int64_t>(pass.words, 1));
  for (std::size_t i = 0; i < parameters_.size(); ++i) device_.engine->wait(parameters_.value(parameters_[i]).var());
  pass.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return pass;
}

ParserTrainer::Pass ParserTrainer::train() {
  next_ = order_.size();
  return train(order_.size());
}

std::vector<DependencyTree> ParserTrainer::parse(const std::vector<DependencySentence>& sentences) {
  std::vector<DependencyTree> trees;
  for (std::size_t begin = 0; begin < sentences.size(); begin += options_.batch) {
    std::vector<LazyTask<DependencyTree>> tasks;
    for (std::size_t i = begin; i < std::min(begin + options_.batch, sentences.size()); ++i) {
      tasks.push_back(parse(numbered(sentences[i])));
    }
    for (DependencyTree& tree : run(parsing_, std::move(tasks))) trees.push_back(std::move(tree));
    parsing_.clear();
  }
  return trees;
}

AttachmentScores ParserTrainer::evaluate(const std::vector<DependencySentence>& sentences) {
  std::size_t words = 0, heads = 0, both = 0;
  const std::vector<DependencyTree> trees = parse(sentences);
  for (std::size_t s = 0; s < sentences.size(); ++s) {
    for (std::size_t i = 0; i < trees[s].heads.size(); ++i, ++words) {
      const bool right = trees[s].heads[i] == sentences[s].heads[i];
      heads += right;
      both += right && trees[s].relations[i] == sentences[s].relations[i];
    }
  }
  const auto all = static_cast<double>(std::max<std::size_t>(words, 1));
  return {static_cast<double>(heads) / all, static_cast<double>(both) / all};
}

}  // namespace windrow
