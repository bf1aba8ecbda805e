// Trainers that go on from checkpoints.
#include <optional>

#include "tests/models/training.h"
#include "windrow/training/tensor_file.h"

namespace windrow::testing {
namespace {

struct ResumedCase {
  const char* name;
  WorkloadOptions options = {};
  TrainerOptions training = {.minibatch = 8};
};
void PrintTo(const ResumedCase& value, std::ostream* out) { *out << value.name; }

/// A trainer with its engine and workload.
struct Training {
  explicit Training(const ResumedCase& of, int workers = 2)
      : engine({.policy = Policy::pool, .workers = workers}),
        workload(make_workload(of.name, host_device(engine), of.options)),
        trainer(host_device(engine), workload, of.training) {}

  Engine engine;
  Workload workload;
  Trainer trainer;
};

struct Result {
  std::vector<std::vector<float>> parameters;
  std::vector<double> losses, scores;
  friend bool operator==(const Result&, const Result&) = default;
};

constexpr int epochs = 3;

void add_epoch(Training& run, Result& result, const Trainer::Between& between = {}) {
  result.losses.push_back(run.trainer.train_epoch(between).loss);
  for (const Metric& metric : run.trainer.evaluate()) result.scores.push_back(metric.value);
}

void finish(Training& run, Result& result) {
  while (run.trainer.epochs() < epochs) add_epoch(run, result);
  result.parameters = parameters_of(run.workload);
}

/// Saves once, in the middle of an epoch.
Trainer::Between saving_to(CheckpointWriter& writer, Trainer& trainer, Trainer::Then then) {
  return [&writer, &trainer, then, saved = false](const Trainer::Pass& so_far) mutable {
    if (saved || so_far.samples < 20) return Trainer::Then::go_on;
    saved = true;
    trainer.save(writer);
    return then;
  };
}

class Resuming : public ::testing::TestWithParam<ResumedCase> {};

/// Stops in the second epoch.
TEST_P(Resuming, GivesTheBitsThatSavingAndGoingOnGives) {
  const ResumedCase& of = GetParam();
  const TextFolder other({}), folder({});
  Training straight(of);
  Result expected;
  add_epoch(straight, expected);
  {
    CheckpointWriter writer(other.path);
    add_epoch(straight, expected, saving_to(writer, straight.trainer, Trainer::Then::go_on));
  }
  finish(straight, expected);

  Result result;
  {
    Training run(of);
    add_epoch(run, result);
    CheckpointWriter writer(folder.path);
    run.trainer.train_epoch(saving_to(writer, run.trainer, Trainer::Then::stop));
    EXPECT_TRUE(run.trainer.in_epoch());
  }
  Training later(of, 1);
  const NewestCheckpoint newest = CheckpointFolder(folder.path).newest();
  ASSERT_TRUE(newest.checkpoint);
  later.trainer.resume(*newest.checkpoint);
  EXPECT_EQ(later.trainer.epochs(), 1u);
  finish(later, result);
  EXPECT_EQ(result.losses, expected.losses);
  EXPECT_EQ(result.scores, expected.scores);
  EXPECT_TRUE(result.parameters == expected.parameters);
}

WorkloadOptions small(std::map<std::string, Index> more = {{"embedding", 8}}, DropoutRates dropout = {}) {
  more.merge(std::map<std::string, Index>{{"hidden", 8}});
  return {.seed = 3, .samples = 40, .sizes = std::move(more), .dropout = dropout};
}

INSTANTIATE_TEST_SUITE_P(
    All, Resuming,
    ::testing::Values(ResumedCase{"tree-lstm", small()},
                      ResumedCase{
                          "tree-lstm",
                          small({{"embedding", 8}}, {.element = 0.3, .word = 0.1}),
                          {.minibatch = 8,
                           .micro_batches = 3,
                           .method = Method::adam(),
                           .optimiser = {.rate = LearningRate::cosine(1e-2, 15), .clip_norm = 1, .accumulate = 2},
                           .averages = AveragesOptions{.decay = 0.9},
                           .runner = {.schedule = SchedulePolicy::complete}}},
                      ResumedCase{"var-lstm",
                                  small({{"embedding", 8}, {"vocabulary", 50}}, {.element = 0.3}),
                                  {.minibatch = 8, .method = Method::momentum()}},
                      ResumedCase{"bilstm-char",
                                  small({{"embedding", 8}, {"character-embedding", 4}, {"character-hidden", 8}}),
                                  {.minibatch = 8, .method = Method::adagrad()}},
                      ResumedCase{"listops",
                                  small(std::map<std::string, Index>()),
                                  {.minibatch = 8, .method = Method::rmsprop(), .runner = {.own_types = 1}}},
                      ResumedCase{"dag", small(), {.minibatch = 8, .runner = {.schedule = SchedulePolicy::complete}}},
                      ResumedCase{"seq2seq", small(), {.minibatch = 8, .method = Method::adam()}},
                      ResumedCase{"parser", small({{"embedding", 8}, {"tag-embedding", 4}, {"scorer", 8}})}));

TEST(Trainer, RefusesCheckpointsOfOtherTrainers) {
  const ResumedCase of{"tree-lstm", small()};
  const TextFolder folder({});
  {
    Training run(of);
    run.trainer.train_epoch({});
    CheckpointWriter writer(folder.path);
    run.trainer.save(writer);
  }
  const NewestCheckpoint newest = CheckpointFolder(folder.path).newest();
  const auto refused = [&](const ResumedCase& other) {
    Training run(other);
    const std::string text = error_of<FileError>([&] { run.trainer.resume(*newest.checkpoint); });
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    return text.substr(text.find(": ") + 2);
  };
  EXPECT_EQ(refused({"tree-lstm", small({{"hidden", 9}, {"embedding", 8}})}),
            "tensor 'leaf' is 8 x 24 of F32; expected 8 x 27 of F32");
  EXPECT_EQ(refused({"tree-lstm", of.options, {.minibatch = 8, .method = Method::adam()}}),
            "of optimiser sgd; expected adam");
  EXPECT_EQ(refused({"var-lstm", small({{"embedding", 8}, {"vocabulary", 50}})}).substr(0, 12), "tensor 'word");
  WorkloadOptions fewer = of.options;
  fewer.samples = 30;
  EXPECT_NE(refused({"tree-lstm", fewer}), "");
}

}  // namespace
}  // namespace windrow::testing
