// Training of workloads, of which a Tree-LSTM stands for all; see workloads_test.cc for each. Trainers that go on from
// checkpoints.
#include "windrow/models/trainer.h"

#include "tests/models/training.h"
#include "windrow/comm/local.h"
#include "windrow/training/tensor_file.h"

namespace windrow::testing {
namespace {

WorkloadOptions of_trees(std::size_t samples, std::uint64_t seed, Index width = 8) {
  return {.seed = seed, .samples = samples, .sizes = {{"hidden", width}, {"embedding", width}}};
}

/// A Tree-LSTM with what it needs.
struct Trees : Training {
  explicit Trees(const WorkloadOptions& options, const TrainerOptions& training = {.minibatch = 16})
      : Training("tree-lstm", options, training) {}
};

TEST(Trainer, ComputesOneVertexAtATimeUnbatched) {
  Trees trees(of_trees(50, 3));
  Trainer& trainer = trees.trainer;
  EXPECT_EQ(trainer.stats(Trainer::Batching::unbatched).vertices, 0);
  const Trainer::Pass batched = trainer.train(50);
  const Trainer::Pass unbatched = trainer.train(50, Trainer::Batching::unbatched);
  EXPECT_NE(batched.seconds, unbatched.seconds);
  EXPECT_LT(trainer.stats().batches, batched.vertices / 2);
  EXPECT_GT(trainer.stats(Trainer::Batching::unbatched).batches, unbatched.vertices);
  EXPECT_EQ(trainer.stats(Trainer::Batching::unbatched).multiply_flops, trainer.stats().multiply_flops);
}

TEST(Trainer, TakesAFewSamplesToCompareUnbatched) {
  Trees few(of_trees(3, 3)), many(of_trees(600, 3));
  EXPECT_EQ(few.trainer.train_some_unbatched().samples, 3u);
  const Trainer::Pass some = many.trainer.train_some_unbatched();
  EXPECT_NEAR(static_cast<double>(some.vertices), 10'000, 2000);
  EXPECT_GT(many.trainer.stats(Trainer::Batching::unbatched).batches, some.vertices);
}

TEST(Trainer, SumsTheLossOfAllLabelsHoweverTheyAreCut) {
  const auto loss_of = [](std::size_t batch) {
    return Trees(of_trees(50, 3), {.minibatch = batch, .optimiser = {.rate = 0}}).trainer.train().loss;
  };
  const double whole = loss_of(50);
  EXPECT_GT(whole, 1);
  for (std::size_t batch : {1, 7, 16, 49, 64}) EXPECT_NEAR(loss_of(batch), whole, 1e-5) << "batch " << batch;
}

TEST(Trainer, StepsByTheSamplesThereAre) {
  const auto trained = [](std::size_t batch) {
    Trees trees(of_trees(1, 3), {.minibatch = batch});
    trees.trainer.train();
    return parameters_of(trees.workload);
  };
  EXPECT_EQ(trained(1), trained(64));
}

TEST(Trainer, DrawsANewOrderForEachRound) {
  Trees trees(of_trees(30, 3));
  std::vector<std::vector<std::int64_t>> orders(2);
  for (auto& order : orders) {
    for (std::size_t i = 0; i < 30; ++i) order.push_back(trees.trainer.train(1).vertices);
  }
  std::vector<std::int64_t> as_given;
  for (const Sample& sample : trees.workload.training) as_given.push_back(sample.vertices);
  EXPECT_NE(orders[0], as_given);
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_TRUE(std::is_permutation(orders[1].begin(), orders[1].end(), as_given.begin(), as_given.end()));
}

TEST(Trainer, GoesThroughAllSamplesBeforeItSeesOneAgain) {
  Trees trees(of_trees(50, 3));
  Trainer& trainer = trees.trainer;
  std::int64_t vertices = 0;
  for (const Sample& sample : trees.workload.training) vertices += sample.vertices;
  EXPECT_EQ(trainer.train().vertices, vertices);
  for (int round = 0; round < 3; ++round) {
    const Trainer::Pass part = trainer.train(20), rest = trainer.train(30);
    EXPECT_EQ(part.samples, 20u);
    EXPECT_EQ(rest.samples, 30u);
    EXPECT_EQ(part.vertices + rest.vertices, vertices);
  }
  trainer.train(20);
  EXPECT_EQ(trainer.train().vertices, vertices) << "begins anew";
  EXPECT_EQ(trainer.train(0).loss, 0);
}

TEST(Trainer, CountsCorrectLabelsAndRoots) {
  const TextFolder folder({{"train.txt", "(1 (1 a) (1 b))\n(1 (1 b) (1 a))\n"},
                           {"dev.txt", "(1 (1 a) (0 b))\n(2 (1 b) (1 a))\n(1 a)\n(4 (1 a) (1 b))\n"}});
  WorkloadOptions options = of_trees(0, 1);
  options.data = folder.path.string();
  Trees trees(options, {.minibatch = 2, .optimiser = {.rate = 0.5}});
  trees.train(50);
  const std::vector<Metric> metrics = trees.trainer.evaluate();
  ASSERT_EQ(metrics.size(), 2u);
  EXPECT_EQ(metrics[0].name, "root accuracy");
  EXPECT_DOUBLE_EQ(metrics[0].value, 0.5);
  EXPECT_EQ(metrics[1].name, "all-node accuracy");
  EXPECT_DOUBLE_EQ(metrics[1].value, 0.7);
  trees.workload.validation.resize(1, trees.workload.validation[0]);
  const auto score_with = [&](const std::vector<std::int32_t>& labels) {
    GraphNetwork& network = graphs_of(trees.workload);
    const GraphData tree{
        .child_begin = {0, 0, 0, 2}, .children = {0, 1}, .indices = {{"word", {1, 1, -1}}, {"label", labels}}};
    network.validation[0].graph = InputGraph(network.function(), tree);
    return trees.trainer.evaluate();
  };
  EXPECT_DOUBLE_EQ(score_with({-1, -1, 1})[1].value, 1) << "of the vertices that have a label";
  for (const Metric& metric : score_with({-1, -1, -1})) EXPECT_EQ(metric.value, 0) << "of nothing";
}

/// The parameters after two epochs, by member of a group.
std::vector<std::vector<float>> trained_by(int members, const std::string& model, const WorkloadOptions& options,
                                           std::size_t micro_batches = 1) {
  Engine engine({.workers = 2});
  const std::vector<Device> devices = host_devices(engine, members);
  const LocalGroup group(devices);
  std::vector<std::vector<float>> results(devices.size());
  on_threads(members, [&](int rank) {
    const Device& device = devices[static_cast<std::size_t>(rank)];
    Workload workload = make_workload(model, device, options);
    Trainer trainer(
        device, workload,
        {.minibatch = 7, .micro_batches = micro_batches, .optimiser = {.rate = 0.05}, .group = group[rank]});
    for (int epoch = 0; epoch < 2; ++epoch) trainer.train();
    EXPECT_EQ(trainer.minibatches(), 2 * ((workload.training.size() + 6) / 7)) << "of member " << rank;
    for (const std::vector<float>& values : parameters_of(workload)) {
      std::ranges::copy(values, std::back_inserter(results[static_cast<std::size_t>(rank)]));
    }
  });
  return results;
}

/// Also in minibatches with fewer samples than members.
TEST(Trainer, MembersOfAGroupDrawAndTrainAsOneDoes) {
  for (const std::string model : {"tree-lstm", "bilstm", "seq2seq", "parser"}) {
    SCOPED_TRACE(model);
    WorkloadOptions options = of_trees(16, 3);
    if (model != "parser") options.dropout = {.element = 0.4, .word = 0.2};
    const std::vector<float> expected = trained_by(1, model, options).front();
    for (const int members : {2, 3}) {
      const auto results = trained_by(members, model, options, members == 2 ? 2 : 1);
      for (const std::vector<float>& result : results) EXPECT_EQ(result, results.front());
      expect_near(results.front(), expected, 1e-4);
    }
  }
}

TEST(Trainer, ComputesAMinibatchInPartsThatTakeLessMemory) {
  for (const std::string model : {"tree-lstm", "bilstm", "seq2seq", "parser", "mlp"}) {
    SCOPED_TRACE(model);
    WorkloadOptions options = of_trees(16, 3);
    if (model == "mlp") options.sizes = {};
    if (model != "parser" && model != "mlp") options.dropout = {.element = 0.4, .word = 0.2};
    const auto trained = [&](std::size_t parts, std::int64_t& peak) {
      Training run(model, options, {.minibatch = 7, .micro_batches = parts, .optimiser = {.rate = 0.01}});
      std::vector<Floats> all = {{static_cast<float>(run.train(1) + run.train(1))}};
      peak = run.trainer.stats().peak_bytes;
      EXPECT_EQ(run.trainer.minibatches(), 6u);
      std::ranges::copy(parameters_of(run.workload), std::back_inserter(all));
      return all;
    };
    std::int64_t peak = 0, less = 0;
    const std::vector<Floats> expected = trained(1, peak);
    for (const std::size_t parts : {3, 100}) {
      const std::vector<Floats> result = trained(parts, less);
      for (std::size_t p = 0; p < expected.size(); ++p) expect_near(result[p], expected[p], 1e-4);
      EXPECT_LT(less, peak) << parts;
    }
  }
}

/// The margin loss of a sentence that is parsed right is none.
TEST(Trainer, KeepsTheGradientsOfPartsBesideOneWithoutALoss) {
  Training run("parser", of_trees(8, 3), {.minibatch = 1, .optimiser = {.rate = 0.02}});
  Parameters& parameters = *run.workload.parameters;
  const std::unique_ptr<Learner> learner = run.workload.network->learner({});
  const auto loss_of = [&](std::size_t sample) {
    parameters.set_minibatches(0);  // each time with the same words dropped
    return learner->differentiate(std::span(&sample, 1))();
  };
  std::optional<std::size_t> with, without;
  for (int epoch = 0; epoch < 200 && !(with && without); ++epoch) {
    run.train(1);
    with = without = {};
    for (std::size_t sample = 0; sample < 8; ++sample) (loss_of(sample) > 0 ? with : without) = sample;
  }
  ASSERT_TRUE(with && without);
  const auto gradients_of = [&](std::size_t sample) {
    loss_of(sample);
    std::vector<std::vector<float>> all;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (parameters.has_dense_gradient(parameters[i])) all.push_back(parameters.dense_gradient(parameters[i]).get());
    }
    return all;
  };
  const auto expected = gradients_of(*with);
  EXPECT_FALSE(expected.empty());
  loss_of(*with);
  parameters.keep_gradients();
  EXPECT_EQ(gradients_of(*without), expected);
  EXPECT_EQ(gradients_of(*with), expected) << "of a minibatch that replaces them";
}

TEST(Trainer, StopsAtALossThatIsNotFinite) {
  Trees trees(of_trees(100, 1), {.minibatch = 10, .optimiser = {.rate = 3e38}});
  const std::string text = error_of<OpError>([&] { trees.trainer.train(); });
  EXPECT_NE(text.find("minibatch "), std::string::npos) << text;
  EXPECT_NE(text.find("expected a finite number"), std::string::npos) << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  EXPECT_THROW(trees.trainer.train(), OpError) << "of no more use";
}

TEST(Trainer, RefusesWhatCannotTrain) {
  EXPECT_EQ(error_of<MisuseError>([] { Trees(of_trees(1, 1), {.optimiser = {.rate = -1}}); }),
            "learning rate -1; expected a number, 0 or more, that a float holds");
  EXPECT_EQ(error_of<MisuseError>([] { Trees(of_trees(1, 1), {.minibatch = 0}); }),
            "trainer: minibatch size 0; expected 1 to 16777216");
  EXPECT_EQ(error_of<MisuseError>([] { Trees(of_trees(1, 1), {.micro_batches = 0}); }),
            "trainer: 0 micro-batches; expected 1 to 16777216");
  Trees trees(of_trees(1, 1));
  trees.workload.training.clear();
  Trainer without(host_device(trees.engine), trees.workload, {});
  const auto train = {+[](Trainer& t) { t.train(); }, +[](Trainer& t) { t.train_epoch({}); },
                      +[](Trainer& t) { t.train(8); }, +[](Trainer& t) { t.train_some_unbatched(); }};
  for (const auto trains : train) {
    EXPECT_EQ(error_of<MisuseError>([&] { trains(without); }), "trainer: no training samples; expected at least one");
  }
  EXPECT_FALSE(without.evaluate().empty());
}

struct ResumedCase {
  const char* name;
  WorkloadOptions options = {};
  TrainerOptions training = {.minibatch = 8};
};
void PrintTo(const ResumedCase& value, std::ostream* out) { *out << value.name; }

/// A trainer of a case.
struct Resumed : Training {
  explicit Resumed(const ResumedCase& of, int workers = 2)
      : Training(of.name, of.options, of.training, {.policy = Policy::pool, .workers = workers}) {}
};

struct Result {
  std::vector<std::vector<float>> parameters;
  std::vector<double> losses, scores;
  friend bool operator==(const Result&, const Result&) = default;
};

constexpr int epochs = 3;

void add_epoch(Resumed& run, Result& result, const Trainer::Between& between = {}) {
  result.losses.push_back(run.trainer.train_epoch(between).loss);
  for (const Metric& metric : run.trainer.evaluate()) result.scores.push_back(metric.value);
}

void finish(Resumed& run, Result& result) {
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
  Resumed straight(of);
  Result expected;
  add_epoch(straight, expected);
  {
    CheckpointWriter writer(other.path);
    add_epoch(straight, expected, saving_to(writer, straight.trainer, Trainer::Then::go_on));
  }
  finish(straight, expected);

  Result result;
  {
    Resumed run(of);
    add_epoch(run, result);
    CheckpointWriter writer(folder.path);
    run.trainer.train_epoch(saving_to(writer, run.trainer, Trainer::Then::stop));
    EXPECT_TRUE(run.trainer.in_epoch());
  }
  Resumed later(of, 1);
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
    Resumed run(of);
    run.trainer.train_epoch({});
    CheckpointWriter writer(folder.path);
    run.trainer.save(writer);
  }
  const NewestCheckpoint newest = CheckpointFolder(folder.path).newest();
  const auto refused = [&](const ResumedCase& other) {
    Resumed run(other);
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
