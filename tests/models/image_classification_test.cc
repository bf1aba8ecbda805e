// Workloads of images: that they learn, and give the same bits recorded and operator by operator.
#include "tests/models/training.h"
#include "tests/sanitized.h"
#include "windrow/models/datasets.h"
#include "windrow/models/internal/image_classifier.h"
#include "windrow/models/workload.h"

namespace windrow::testing {
namespace {

/// A model of images at a size for tests.
class ImageModels : public ::testing::TestWithParam<const char*> {
 protected:
  static WorkloadOptions options(std::size_t samples) {
    WorkloadOptions options{.seed = 3, .samples = samples, .sizes = {{"hidden", 32}}};
    if (GetParam() == std::string("cnn")) {
      options.sizes["filters"] = 4;
      options.sizes["more-filters"] = 6;
    }
    return options;
  }
  static Trained train(const EngineOptions& engine_options, const WorkloadOptions& options,
                       const TrainerOptions& training, Trainer::Batching batching = Trainer::Batching::batched) {
    return train_twice(GetParam(), engine_options, options, training, batching);
  }
};

// 50 samples in minibatches of 16: the last one of an epoch has a recording of its own.
TEST_P(ImageModels, GiveTheSameBitsRecordedAndNotWhateverTheWorkersAndThePolicy) {
  WorkloadOptions of = options(50);
  const TrainerOptions training{.minibatch = 16, .method = Method::adam(), .optimiser = {.rate = 0.01}};
  of.graph_mode = false;
  const Trained eager = train({.policy = Policy::pool, .workers = 1}, of, training);
  EXPECT_TRUE(train({.policy = Policy::pool, .workers = 2}, of, training) == eager);
  of.graph_mode = true;
  EXPECT_TRUE(train({.policy = Policy::pool, .workers = 2}, of, training) == eager);
  EXPECT_TRUE(train({.policy = Policy::serial, .workers = 1}, of, training) == eager);
  EXPECT_TRUE(train({.policy = Policy::chaos, .workers = 3}, of, training) == eager);
}

TEST_P(ImageModels, AddUpTheGradientsOfAccumulatedMinibatches) {
  const auto accumulated = [](std::size_t minibatch, std::size_t accumulate) {
    return TrainerOptions{.minibatch = minibatch, .optimiser = {.rate = 0.05, .accumulate = accumulate}};
  };
  WorkloadOptions of = options(48);
  const Trained together = train({}, of, accumulated(16, 1));
  for (const bool graph_mode : {false, true}) {
    of.graph_mode = graph_mode;
    const Trained apart = train({}, of, accumulated(4, 4));
    ASSERT_EQ(apart.parameters.size(), together.parameters.size());
    for (std::size_t p = 0; p < apart.parameters.size(); ++p) {
      for (std::size_t i = 0; i < apart.parameters[p].size(); ++i) {
        ASSERT_NEAR(apart.parameters[p][i], together.parameters[p][i], 2e-5) << p << " " << i;
      }
    }
  }
}

TEST_P(ImageModels, LearnTheSameOneByOne) {
  const TrainerOptions training{.minibatch = 16, .optimiser = {.rate = 0.05}};
  const Trained batched = train({}, options(48), training),
                one_by_one = train({}, options(48), training, Trainer::Batching::unbatched);
  for (std::size_t pass = 0; pass < batched.losses.size(); ++pass) {
    EXPECT_NEAR(batched.losses[pass], one_by_one.losses[pass], 1e-4 * batched.losses[pass]);
  }
}

TEST_P(ImageModels, LearnWhatHoldsOnTheValidationSet) {
  Engine engine;
  Workload workload = make_workload(GetParam(), host_device(engine), options(sanitized ? 300 : 2000));
  Trainer trainer(host_device(engine), workload,
                  {.minibatch = 16, .method = Method::adam(), .optimiser = {.rate = 0.003}});
  EXPECT_LT(trainer.evaluate().at(0).value, 0.35);
  const Trainer::Pass first = trainer.train(), second = trainer.train();
  EXPECT_LT(second.loss, first.loss);
  if (sanitized) return;  // on so few samples
  EXPECT_GT(trainer.evaluate().at(0).value, 0.85);
}

INSTANTIATE_TEST_SUITE_P(All, ImageModels, ::testing::Values("mlp", "cnn"),
                         [](const auto& each) { return std::string(each.param); });

TEST(ImageClassification, RefusesWhatDoesNotFit) {
  Engine engine;
  const Device host = host_device(engine);
  EXPECT_EQ(error_of<MisuseError>([&] { check_workload("tree-lstm", {.graph_mode = true}); }),
            "tree-lstm: graph mode; expected none, because the structure differs from sample to sample");
  Parameters parameters(host, 1);
  EXPECT_EQ(error_of<MisuseError>([&] {
              make_convolutional(
                  parameters, {.height = 15, .width = 28, .filters = 1, .more_filters = 1, .hidden = 1, .classes = 2});
            }),
            "make_convolutional: images of 15 x 28; expected at least 16 x 16");
}

}  // namespace
}  // namespace windrow::testing
