// Training a Tree-LSTM, from text to accuracy.
#include "windrow/models/tree_trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

namespace windrow {
namespace {

std::vector<LabelledTree> generated(std::size_t trees, std::uint64_t seed) {
  std::istringstream text(generate_treebank(trees, seed));
  return read_treebank(text, "generated");
}

constexpr TreeTrainerOptions small = {.hidden = 16, .embedding = 12, .batch = 16};

/// All parameters, and the loss, after some training.
struct Trained {
  std::vector<std::vector<float>> parameters;
  std::vector<double> losses;
  friend bool operator==(const Trained&, const Trained&) = default;
};

Trained train(Policy policy, int workers, TreeTrainer::Batching batching = TreeTrainer::Batching::batched) {
  Engine engine({.policy = policy, .workers = workers});
  TreeTrainer trainer(host_device(engine), generated(100, 1), small);
  Trained result;
  for (int pass = 0; pass < 2; ++pass) result.losses.push_back(trainer.train(100, batching).loss);
  for (std::size_t i = 0; i < trainer.parameters().size(); ++i) {
    result.parameters.push_back(trainer.parameters().value(trainer.parameters()[i]).get());
  }
  return result;
}

TEST(TreeTrainer, GivesTheSameBitsWhateverTheWorkersAndThePolicy) {
  const Trained one = train(Policy::pool, 1);
  EXPECT_TRUE(train(Policy::pool, 2) == one);
  EXPECT_TRUE(train(Policy::pool, 8) == one);
  EXPECT_TRUE(train(Policy::serial, 1) == one);
  EXPECT_TRUE(train(Policy::per_device, 2) == one);
  EXPECT_TRUE(train(Policy::chaos, 3) == one);
}

TEST(TreeTrainer, LearnsTheSameUnbatched) {
  const Trained batched = train(Policy::pool, 2);
  const Trained unbatched = train(Policy::pool, 2, TreeTrainer::Batching::unbatched);
  for (std::size_t i = 0; i < batched.losses.size(); ++i) EXPECT_NEAR(batched.losses[i], unbatched.losses[i], 1e-4);
}

TEST(TreeTrainer, ComputesOneVertexAtATimeUnbatched) {
  Engine engine;
  TreeTrainer trainer(host_device(engine), generated(50, 3), small);
  EXPECT_EQ(trainer.stats(TreeTrainer::Batching::unbatched).vertices, 0);
  const TreeTrainer::Pass batched = trainer.train(50);
  const TreeTrainer::Pass unbatched = trainer.train(50, TreeTrainer::Batching::unbatched);
  EXPECT_NE(batched.seconds, unbatched.seconds);
  EXPECT_LT(trainer.stats().batches, batched.vertices / 2);
  EXPECT_GT(trainer.stats(TreeTrainer::Batching::unbatched).batches, unbatched.vertices);
  EXPECT_EQ(trainer.stats(TreeTrainer::Batching::unbatched).multiply_flops, trainer.stats().multiply_flops);
}

TEST(TreeTrainer, SumsTheLossOfAllVerticesHoweverTheyAreCut) {
  const auto loss_of = [](std::size_t batch) {
    Engine engine;
    return TreeTrainer(host_device(engine), generated(50, 3), {.hidden = 8, .embedding = 8, .batch = batch, .rate = 0})
        .train()
        .loss;
  };
  const double whole = loss_of(50);
  EXPECT_GT(whole, 1);
  for (std::size_t batch : {1, 7, 16, 49, 64}) EXPECT_NEAR(loss_of(batch), whole, 1e-5) << "batch " << batch;
}

TEST(TreeTrainer, StepsByTheTreesThereAre) {
  const auto trained = [](std::size_t batch) {
    Engine engine;
    TreeTrainer trainer(host_device(engine), generated(1, 3), {.hidden = 8, .embedding = 8, .batch = batch});
    trainer.train();
    return trainer.parameters().value(trainer.parameters().find("inner")).get();
  };
  EXPECT_EQ(trained(1), trained(64));
}

TEST(TreeTrainer, DrawsANewOrderForEachRound) {
  Engine engine;
  const auto trees = generated(30, 3);
  TreeTrainer trainer(host_device(engine), trees, small);
  std::vector<std::vector<std::int64_t>> orders(2);
  for (auto& order : orders) {
    for (std::size_t i = 0; i < trees.size(); ++i) order.push_back(trainer.train(1).vertices);
  }
  std::vector<std::int64_t> as_given;
  for (const LabelledTree& tree : trees) as_given.push_back(static_cast<std::int64_t>(tree.words.size()));
  EXPECT_NE(orders[0], as_given);
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_TRUE(std::is_permutation(orders[1].begin(), orders[1].end(), as_given.begin(), as_given.end()));
}

TEST(TreeTrainer, LearnsWhatItHasNotSeen) {
  Engine engine;
  TreeTrainer trainer(host_device(engine), generated(600, 1),
                      {.hidden = 24, .embedding = 24, .batch = 16, .rate = 0.2, .seed = 5});
  const TreeTrainer::Trees unseen = trainer.prepare(generated(200, 2));
  const TreeAccuracy before = trainer.evaluate(unseen);
  const double first = trainer.train().loss;
  double last = first;
  for (int pass = 0; pass < 11; ++pass) last = trainer.train().loss;
  const TreeAccuracy after = trainer.evaluate(unseen);
  EXPECT_LT(last, 0.3 * first);
  EXPECT_LT(before.all, 0.55);  // half of all vertices are neutral
  EXPECT_GT(after.all, 0.7);
  EXPECT_GT(after.root, before.root + 0.1);
}

TEST(TreeTrainer, GoesThroughAllTreesBeforeItSeesOneAgain) {
  Engine engine;
  const auto trees = generated(50, 3);
  TreeTrainer trainer(host_device(engine), trees, small);
  std::int64_t vertices = 0;
  for (const LabelledTree& tree : trees) vertices += static_cast<std::int64_t>(tree.words.size());
  EXPECT_EQ(trainer.train().vertices, vertices);
  for (int round = 0; round < 3; ++round) {
    const TreeTrainer::Pass part = trainer.train(20), rest = trainer.train(30);
    EXPECT_EQ(part.trees, 20u);
    EXPECT_EQ(rest.trees, 30u);
    EXPECT_EQ(part.vertices + rest.vertices, vertices);
  }
  trainer.train(20);
  EXPECT_EQ(trainer.train().vertices, vertices) << "begins anew";
  EXPECT_EQ(trainer.train(0).loss, 0);
}

TEST(TreeTrainer, DoesTheWorkThatTheFormulaSays) {
  Engine engine;
  TreeTrainer trainer(host_device(engine), generated(50, 3), small);
  trainer.train();
  EXPECT_DOUBLE_EQ(static_cast<double>(trainer.stats().multiply_flops), 3 * 50 * trainer.flops_a_tree());
}

TEST(TreeTrainer, CountsVerticesAndRootsThatAreRight) {
  Engine engine;
  std::istringstream text("(1 (1 a) (1 b))\n(1 (1 b) (1 a))\n");
  const auto trees = read_treebank(text, "text");
  TreeTrainer trainer(host_device(engine), trees, {.hidden = 8, .embedding = 8, .batch = 2, .rate = 0.5});
  for (int pass = 0; pass < 50; ++pass) trainer.train();
  std::istringstream other("(1 (1 a) (0 b))\n(2 (1 b) (1 a))\n(1 a)\n(4 (1 a) (1 b))\n");
  const TreeAccuracy accuracy = trainer.evaluate(trainer.prepare(read_treebank(other, "text")));
  EXPECT_DOUBLE_EQ(accuracy.root, 0.5);
  EXPECT_DOUBLE_EQ(accuracy.all, 0.7);
  auto unlabelled = trees;
  unlabelled[0].graph.indices["label"] = {-1, 1, -1};
  EXPECT_DOUBLE_EQ(trainer.evaluate(trainer.prepare(unlabelled)).all, 1);
  EXPECT_DOUBLE_EQ(trainer.evaluate(trainer.prepare(unlabelled)).root, 1);
}

TEST(TreeTrainer, StopsAtALossThatIsNotFinite) {
  Engine engine;
  TreeTrainer trainer(host_device(engine), generated(100, 1), {.hidden = 8, .embedding = 8, .batch = 10, .rate = 3e38});
  try {
    trainer.train();
    FAIL() << "went on";
  } catch (const OpError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("minibatch "), std::string::npos) << text;
    EXPECT_NE(text.find("expected a finite number"), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
  EXPECT_THROW(trainer.train(), OpError) << "of no more use";
}

TEST(TreeTrainer, RefusesWhatCannotTrain) {
  Engine engine;
  const Device host = host_device(engine);
  const auto error_of = [&](const std::vector<LabelledTree>& trees, TreeTrainerOptions options) -> std::string {
    try {
      TreeTrainer(host, trees, options);
    } catch (const MisuseError& error) {
      return error.what();
    }
    return "was taken";
  };
  EXPECT_EQ(error_of({}, small), "tree trainer: no trees; expected one or more");
  EXPECT_EQ(error_of(generated(1, 1), {.hidden = 4, .embedding = 0, .batch = 1}),
            "tree trainer: embedding 0; expected 1 to 16777216");
  EXPECT_EQ(error_of(generated(1, 1), {.hidden = 1 << 25}), "tree trainer: hidden 33554432; expected 1 to 16777216");
  EXPECT_EQ(error_of(generated(1, 1), {.rate = -1}), "tree trainer: rate -1.000000; expected a number, 0 or more");
}

}  // namespace
}  // namespace windrow
