// The transition parser: what it learns, how its sentences batch, and that each is parsed as if it were alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>

#include "tests/batching/cells.h"
#include "tests/ops/cases.h"
#include "windrow/models/parser_trainer.h"

namespace windrow {
namespace {

using testing::dense;
using testing::expect_close;

std::vector<DependencySentence> generated(std::size_t sentences, std::uint64_t seed) {
  std::istringstream text(generate_conllu(sentences, seed));
  return read_conllu(text, "generated");
}

constexpr ParserTrainerOptions small = {.word = 16, .tag = 8, .hidden = 16, .scorer = 16, .batch = 16};

TEST(ParserTrainer, LearnsWhatItHasNotSeen) {
  Engine engine;
  ParserTrainer trainer(host_device(engine), generated(400, 1), small);
  const auto unseen = generated(100, 2);
  const AttachmentScores before = trainer.evaluate(unseen);
  const double first = trainer.train().loss;
  double last = first;
  for (int pass = 0; pass < 7; ++pass) last = trainer.train().loss;
  const AttachmentScores after = trainer.evaluate(unseen);
  EXPECT_LT(last, 0.5 * first);
  EXPECT_LT(before.unlabelled, 0.5);
  EXPECT_GT(after.unlabelled, 0.8);
  EXPECT_GT(after.labelled, 0.75);
}

/// All parameters, and the loss, after some training.
struct Trained {
  std::vector<std::vector<float>> parameters;
  std::vector<double> losses;
  friend bool operator==(const Trained&, const Trained&) = default;
};

Trained train(Policy policy, int workers) {
  Engine engine({.policy = policy, .workers = workers});
  ParserTrainer trainer(host_device(engine), generated(40, 1), small);
  Trained result;
  for (int pass = 0; pass < 2; ++pass) result.losses.push_back(trainer.train().loss);
  for (std::size_t i = 0; i < trainer.parameters().size(); ++i) {
    result.parameters.push_back(trainer.parameters().value(trainer.parameters()[i]).get());
  }
  return result;
}

TEST(ParserTrainer, GivesTheSameBitsWhateverTheWorkersAndThePolicy) {
  const Trained one = train(Policy::pool, 1);
  EXPECT_TRUE(train(Policy::pool, 3) == one);
  EXPECT_TRUE(train(Policy::serial, 1) == one);
  EXPECT_TRUE(train(Policy::chaos, 2) == one);
}

TEST(ParserTrainer, FindsTheSameTreesWhateverTheBatch) {
  Engine engine;
  const auto sentences = generated(30, 1);
  const auto trees_of = [&](std::size_t batch) {
    ParserTrainerOptions options = small;
    options.batch = batch;
    ParserTrainer trainer(host_device(engine), sentences, options);
    return trainer.parse(sentences);
  };
  const auto one_by_one = trees_of(1), together = trees_of(30);
  for (std::size_t i = 0; i < sentences.size(); ++i) EXPECT_EQ(one_by_one[i].heads, together[i].heads) << i;
}

/// As many flushes as the longest sentence has steps, and no way of computing that is found later than the others.
TEST(ParserTrainer, ComputesASentencesStepsWithThoseOfTheOthers) {
  Engine engine;
  auto sentences = generated(64, 5);
  ParserTrainerOptions options = small;
  options.batch = 64;
  ParserTrainer trainer(host_device(engine), sentences, options);
  std::size_t longest = 0;
  for (const DependencySentence& sentence : sentences) longest = std::max(longest, sentence.heads.size());
  std::int64_t flushes = 0;
  std::vector<std::int64_t> kinds;
  for (int pass = 0; pass < 12; ++pass) {
    trainer.train();
    EXPECT_LE(trainer.stats().flushes - flushes, static_cast<std::int64_t>(2 * longest));
    flushes = trainer.stats().flushes;
    kinds.push_back(trainer.stats().kinds);
  }
  EXPECT_LE(kinds.front(), 20);
  EXPECT_EQ(kinds.back(), kinds[1]);
  EXPECT_LT(trainer.stats().runner.batches, trainer.stats().expressions / 20);
  EXPECT_LE(trainer.stats().runner.minibatches, flushes + 12);  // gradients of all steps at once
}

TEST(ParserTrainer, LeavesOutWhatItsTransitionsCannotBuild) {
  Engine engine;
  auto sentences = generated(5, 1);
  sentences[2].heads = {3, 4, 0, 3};
  for (auto* strings : {&sentences[2].forms, &sentences[2].tags, &sentences[2].relations}) strings->assign(4, "x");
  const ParserTrainer trainer(host_device(engine), sentences, small);
  EXPECT_EQ(trainer.size(), 4u);
}

TEST(ParserTrainer, ParsesWhatHasNoWordsOrUnknownOnes) {
  Engine engine;
  ParserTrainer trainer(host_device(engine), generated(5, 1), small);
  const auto trees = trainer.parse({{}, {.forms = {"?"}, .tags = {"?"}, .heads = {0}, .relations = {"?"}}});
  EXPECT_TRUE(trees[0].heads.empty());
  EXPECT_EQ(trees[1].heads, std::vector<std::int32_t>{0});
  EXPECT_NE(trees[1].relations[0], "?");
}

TEST(ParserTrainer, StopsAtScoresThatAreNotFinite) {
  Engine engine;
  ParserTrainerOptions options = small;
  options.rate = 3e38;
  ParserTrainer trainer(host_device(engine), generated(40, 1), options);
  EXPECT_THROW(trainer.train(), Error);
}

TEST(ParserTrainer, RefusesWhatCannotTrain) {
  Engine engine;
  const auto said_of = [&](const std::vector<DependencySentence>& sentences, ParserTrainerOptions options) {
    try {
      ParserTrainer(host_device(engine), sentences, options);
    } catch (const MisuseError& error) {
      return std::string(error.what());
    }
    return std::string("was taken");
  };
  EXPECT_EQ(said_of({}, small), "parser trainer: no projective sentences; expected one or more");
  EXPECT_EQ(said_of(generated(1, 1), {.layers = 0}), "parser trainer: layers 0; expected 1 to 16777216");
  EXPECT_EQ(said_of(generated(1, 1), {.rate = -1}), "parser trainer: rate -1.000000; expected a number, 0 or more");
}

TEST(Parser, NumbersItsActions) {
  for (std::size_t number = 0; number < 9; ++number) EXPECT_EQ(Parser::number(Parser::action(number)), number);
  EXPECT_EQ(Parser::action(3), (ParserAction{Transition::left, 1}));
}

/// Sentences that go a way that is drawn, and collect scores.
class Walks : public ::testing::Test {
 protected:
  enum class Looks { at_each_step, never };
  struct Walk {
    std::vector<std::int32_t> words, tags;
    unsigned seed;
  };
  static constexpr ParserSizes sizes = {
      .words = 10, .tags = 4, .relations = 2, .word = 3, .tag = 2, .hidden = 4, .scorer = 5, .layers = 2};
  Engine engine{{.workers = 2}};
  Device host = host_device(engine);
  Parameters parameters{host, 1};
  Parser parser{parameters, sizes};
  std::vector<Walk> walks;

  Walks() {
    std::mt19937 random(1);
    for (unsigned i = 0; i < 12; ++i) {
      Walk& walk = walks.emplace_back();
      walk.seed = i;
      for (std::size_t length = 1 + random() % 9; length > 0; --length) {
        walk.words.push_back(static_cast<std::int32_t>(random() % 10));
        walk.tags.push_back(static_cast<std::int32_t>(random() % 4));
      }
    }
  }

  LazyTask<std::vector<LazyExpr>> scores_of(LazyGraph& graph, const Walk& walk, Looks looks) const {
    std::mt19937 random(walk.seed);
    const Parser::Sentence sentence = parser.read(graph, walk.words, walk.tags);
    ArcHybrid state(static_cast<std::int32_t>(walk.words.size()));
    std::vector<LazyExpr> scores;
    while (!state.final()) {
      scores.push_back(parser.scores(sentence, state));
      if (looks == Looks::at_each_step) co_await value(scores.back());
      Transition transition{};
      do transition = all_transitions[random() % 3];
      while (!state.legal(transition));
      state.apply(transition);
    }
    co_return scores;
  }

  std::vector<LazyExpr> all_scores(LazyGraph& graph, std::span<const Walk> some, Looks looks) const {
    std::vector<LazyTask<std::vector<LazyExpr>>> tasks;
    for (const Walk& walk : some) tasks.push_back(scores_of(graph, walk, looks));
    std::vector<LazyExpr> all;
    for (auto& scores : run(graph, std::move(tasks))) all.insert(all.end(), scores.begin(), scores.end());
    return all;
  }
};

TEST_F(Walks, HaveTheSameScoresAloneAndTogether) {
  LazyGraph graph(host, parameters, {.use = LazyOptions::For::inference});
  std::vector<std::vector<float>> together;
  for (const LazyExpr& scores : all_scores(graph, walks, Looks::at_each_step)) together.push_back(scores.value());
  auto expected = together.begin();
  for (const Walk& walk : walks) {
    graph.clear();
    for (const LazyExpr& scores : all_scores(graph, {&walk, 1}, Looks::at_each_step)) {
      const std::vector<float> found = scores.value();
      expect_close({found.begin(), found.end()}, {expected->begin(), expected->end()}, 1e-5);
      ++expected;
    }
  }
}

/// However many minibatches the steps are computed in.
TEST_F(Walks, HaveTheSameGradientsWhetherTheyLookOrNot) {
  LazyGraph graph(host, parameters);
  const auto gradients = [&](Looks looks) {
    std::vector<LazyExpr> losses;
    for (const LazyExpr& scores : all_scores(graph, walks, looks)) losses.push_back(row_sum(square(scores)));
    graph.backward(losses);
    std::vector<std::vector<double>> all;
    for (std::size_t p = 0; p < parameters.size(); ++p) all.push_back(dense(parameters, parameters[p]));
    graph.clear();
    return all;
  };
  const auto looking = gradients(Looks::at_each_step), blind = gradients(Looks::never);
  for (std::size_t p = 0; p < looking.size(); ++p) {
    SCOPED_TRACE(parameters.name(parameters[p]));
    expect_close(looking[p], blind[p], 1e-4);
  }
}

}  // namespace
}  // namespace windrow
