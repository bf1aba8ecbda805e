// Every workload at a small size: that it learns, the same whatever runs it, and does the work that its formula says.
#include "tests/models/training.h"
#include "windrow/models/internal/image_classifier.h"

namespace windrow::testing {
namespace {

/// What a workload must come to after so many passes.
struct Goal {
  const char* metric;
  double at_least;  ///< at most, of perplexity
  int passes;
};

/// A workload at a size for tests.
struct WorkloadCase {
  const char* name;
  WorkloadOptions options;
  Goal goal;
  double rate = 0.1;
  /// The share of the formula's operations that are done at least. The first steps of LSTMs have nothing to forget, so
  /// what their forget gates see has no gradient through them.
  double done = 1;
  /// The share of the forward computation that gradients do once more.
  double again = 0;
  Method method = Method::sgd();
  std::size_t minibatch = 16;
};
void PrintTo(const WorkloadCase& value, std::ostream* out) { *out << value.name << " " << value.options.cell; }

class EveryWorkload : public ::testing::TestWithParam<WorkloadCase> {
 protected:
  static Trained train(const EngineOptions& on, const TrainerOptions& training = {.minibatch = 16},
                       Trainer::Batching batching = Trainer::Batching::batched, std::optional<bool> graph_mode = {}) {
    WorkloadOptions few = GetParam().options;
    few.samples = 40;
    few.graph_mode = graph_mode;
    return train_twice(GetParam().name, on, few, training, batching);
  }
  /// Whether a step is recorded: its operators are those of a tape, whose work nobody counts.
  static bool is_recorded() { return workload_kind(GetParam().name).has_graph_mode; }

  static double value_of(const std::vector<Metric>& metrics, const std::string& name) {
    for (const Metric& metric : metrics) {
      if (metric.name == name) return metric.value;
    }
    ADD_FAILURE() << "no metric " << name;
    return NAN;
  }
};

/// Recorded and not: the last minibatch of an epoch has a recording of its own.
TEST_P(EveryWorkload, GivesTheSameBitsWhateverTheWorkersAndThePolicy) {
  const TrainerOptions training{.minibatch = 16, .method = GetParam().method};
  const Trained one = train({.policy = Policy::pool, .workers = 1}, training);
  EXPECT_TRUE(train({.policy = Policy::chaos, .workers = 3}, training) == one);
  if (thread_sanitized) return;
  EXPECT_TRUE(train({.policy = Policy::pool, .workers = 2}, training) == one);
  EXPECT_TRUE(train({.policy = Policy::serial, .workers = 1}, training) == one);
  if (!is_recorded()) return;
  EXPECT_TRUE(train({.policy = Policy::pool, .workers = 2}, training, Trainer::Batching::batched, false) == one);
}

TEST_P(EveryWorkload, LearnsTheSameUnbatchedAndByEverySchedule) {
  const Trained batched = train({});
  const auto expect_near = [&](const Trained& other) {
    for (std::size_t i = 0; i < batched.losses.size(); ++i) {
      EXPECT_NEAR(batched.losses[i], other.losses[i], 1e-4 * std::abs(batched.losses[i]));
    }
  };
  expect_near(train({}, {.minibatch = 16}, Trainer::Batching::unbatched));
  expect_near(train({}, {.minibatch = 16, .runner = {.schedule = SchedulePolicy::agenda}}));
}

TEST_P(EveryWorkload, DoesTheWorkThatTheFormulaSays) {
  if (is_recorded()) return;
  WorkloadOptions options = GetParam().options;
  options.samples = 40;
  Training run(GetParam().name, options, {.minibatch = 16});
  run.train(1);  // of lazy expressions, what they have in common is found at first
  const std::int64_t before = run.trainer.stats().multiply_flops;
  const Trainer::Pass pass = run.trainer.train();
  const auto done = static_cast<double>(run.trainer.stats().multiply_flops - before);
  EXPECT_LE(done, (3 + GetParam().again) * pass.flops * (1 + 1e-12));
  EXPECT_GE(done, 3 * pass.flops * (GetParam().done - 1e-12));
}

TEST_P(EveryWorkload, LearnsWhatHoldsOnTheValidationSet) {
  const auto& [metric, at_least, passes] = GetParam().goal;
  Training run(
      GetParam().name, GetParam().options,
      {.minibatch = GetParam().minibatch, .method = GetParam().method, .optimiser = {.rate = GetParam().rate}});
  const double before = value_of(run.trainer.evaluate(), metric);
  const double first = run.train(1);
  EXPECT_LT(run.train(sanitized ? 1 : passes - 1), first);
  const double after = value_of(run.trainer.evaluate(), metric);
  if (sanitized) return;  // behind so few passes
  if (at_least > 1) {
    EXPECT_LT(after, at_least);
    EXPECT_GT(before, at_least);
  } else {
    EXPECT_GT(after, at_least);
    EXPECT_LT(before, at_least);
  }
}

using SizesOfCase = std::map<std::string, Index>;
SizesOfCase wide(Index width, SizesOfCase more = {}) {
  more.merge(SizesOfCase{{"hidden", width}, {"embedding", width}});
  return more;
}
constexpr std::size_t images = sanitized ? 300 : 2000;
const WorkloadCase cases[] = {
    {"tree-lstm", {.seed = 5, .samples = 600, .sizes = wide(24)}, {"all-node accuracy", 0.7, 12}, 0.2},
    {"tree-lstm",
     {.seed = 5, .samples = 600, .cell = "child-sum", .sizes = wide(24)},
     {"all-node accuracy", 0.65, 12},
     0.2},
    {"tree-lstm",
     {.seed = 5, .samples = 600, .cell = "attention", .sizes = wide(24)},
     {"all-node accuracy", 0.65, 12},
     0.2},
    {"tree-fc", {.samples = 400, .sizes = {{"hidden", 24}, {"leaves", 20}}}, {"accuracy", 0.6, 10}},
    {"fixed-lstm",
     {.samples = 100, .sizes = wide(16, {{"vocabulary", 100}, {"steps", 20}})},
     {"perplexity", 10, 5},
     0.1,
     0.99},
    {"var-lstm", {.samples = 100, .sizes = wide(16, {{"vocabulary", 100}})}, {"perplexity", 10, 5}, 0.1, 0.99},
    {"bilstm", {.samples = 500, .sizes = wide(24)}, {"entity F1", 0.15, 12}, 0.2, 0.99},
    {"bilstm-char",
     {.samples = 300, .sizes = wide(16, {{"layers", 2}, {"character-embedding", 8}, {"character-hidden", 12}})},
     {"entity F1", 0.3, 8},
     0.2,
     0.98},
    {"listops", {.samples = 400, .sizes = {{"hidden", 32}}}, {"all-node accuracy", 0.35, 15}},
    {"dag", {.samples = 200, .sizes = wide(16)}, {"accuracy", 0.6, 12}, 0.3},
    {"lattice-lstm", {.samples = 200, .sizes = wide(16)}, {"accuracy", 0.6, 10}, 0.1, 0.99},
    {"seq2seq", {.samples = 150, .sizes = wide(16)}, {"perplexity", 60, 8}, 0.01, 0.98, 0, Method::adam(), 8},
    {"parser",
     {.samples = 400, .sizes = wide(16, {{"tag-embedding", 8}, {"scorer", 16}})},
     {"LAS", 0.75, 8},
     0.025,
     0.9,
     1},
    {"mlp",
     {.seed = 3, .samples = images, .sizes = {{"hidden", 32}}},
     {"accuracy", 0.85, 2},
     0.003,
     1,
     0,
     Method::adam()},
    {"cnn",
     {.seed = 3, .samples = images, .sizes = {{"hidden", 32}, {"filters", 4}, {"more-filters", 6}}},
     {"accuracy", 0.85, 2},
     0.003,
     1,
     0,
     Method::adam()},
};
INSTANTIATE_TEST_SUITE_P(All, EveryWorkload, ::testing::ValuesIn(cases), [](const auto& one) {
  std::string name = one.param.name + (one.param.options.cell.empty() ? "" : "_" + one.param.options.cell);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

/// Of the labels themselves: what a model comes to that knows how often each is, and nothing else.
double perplexity_of_frequencies(const std::vector<LabelledGraph>& graphs) {
  std::map<std::int32_t, double> counts;
  double all = 0, loss = 0;
  for (const LabelledGraph& graph : graphs) {
    for (const std::int32_t label : graph.labels()) ++counts[label], ++all;
  }
  for (const auto& [label, count] : counts) loss -= count * std::log(count / all);
  return std::exp(loss / all);
}

TEST(LanguageModels, KnowMoreThanHowOftenWordsAre) {
  if (sanitized) GTEST_SKIP() << "what others run there too, for long";
  for (const char* name : {"fixed-lstm", "var-lstm"}) {
    Training run(name, {.samples = 400, .sizes = wide(24, {{"vocabulary", 200}})},
                 {.minibatch = 8, .optimiser = {.rate = 0.1}});
    run.train(15);
    const double perplexity = run.trainer.evaluate()[0].value;
    EXPECT_LT(perplexity, 0.9 * perplexity_of_frequencies(graphs_of(run.workload).validation)) << name;
  }
}

TEST(ImageModels, AddUpTheGradientsOfAccumulatedMinibatches) {
  const auto trained = [](const char* model, std::size_t minibatch, std::size_t accumulate, bool graph_mode) {
    const WorkloadOptions of{.seed = 3, .samples = 48, .sizes = {{"hidden", 32}}, .graph_mode = graph_mode};
    return train_twice(model, {}, of, {.minibatch = minibatch, .optimiser = {.rate = 0.05, .accumulate = accumulate}})
        .parameters;
  };
  for (const char* const model : {"mlp", "cnn"}) {
    const auto together = trained(model, 16, 1, true);
    for (const bool graph_mode : {false, true}) {
      const auto apart = trained(model, 4, 4, graph_mode);
      for (std::size_t p = 0; p < apart.size(); ++p) expect_near(apart[p], together[p], 2e-5);
    }
  }
}

/// With given vocabularies, the training set may have tags that these lack, as the validation set may.
TEST(Tagging, TakesSentencesWithTagsThatGivenVocabulariesLack) {
  std::string sentences;
  for (int i = 1; i <= 20; ++i) sentences += i % 10 == 0 ? "a|O b|I-LOC\n" : i == 1 ? "a|O b|I-NEW\n" : "a|O b|I-PER\n";
  const TextFolder folder({{"all.txt", sentences}});
  const HostWorkload made("bilstm",
                          {.data = folder.path.string(),
                           .sizes = wide(4),
                           .vocabularies = {{"words", {"a", "b"}}, {"tags", {"O", "I-PER"}}, {"characters", {}}}});
  EXPECT_EQ(made.workload.training.size(), 18u);
  EXPECT_EQ(made.workload.network->labels(), (std::vector<std::string>{"", "O", "I-PER"}));
}

std::string refusal_of(const char* name, const WorkloadOptions& options) {
  return error_of<MisuseError>([&] { HostWorkload(name, options); });
}

TEST(Workloads, RefuseWhatTheyDoNotHave) {
  EXPECT_TRUE(refusal_of("rnn", {}).starts_with("workload 'rnn'; expected one of tree-lstm"));
  EXPECT_EQ(refusal_of("tree-lstm", {.sizes = {{"leaves", 3}}}),
            "tree-lstm: size 'leaves' is unknown; expected hidden, embedding, classes");
  EXPECT_EQ(refusal_of("tree-lstm", {.sizes = {{"embedding", 0}}}), "tree-lstm: embedding 0; expected 1 to 16777216");
  EXPECT_EQ(refusal_of("tree-lstm", {.sizes = {{"hidden", 1 << 25}}}),
            "tree-lstm: hidden 33554432; expected 1 to 16777216");
  EXPECT_EQ(refusal_of("tree-lstm", {.sizes = {{"classes", 3}}}), "tree-lstm: classes 3; expected 5, or 2");
  EXPECT_EQ(refusal_of("listops", {.samples = std::size_t{1} << 32}),
            "listops: 4294967296 generated samples; expected at most 16777216");
  EXPECT_EQ(refusal_of("tree-lstm", {.cell = "round"}),
            "tree-lstm: cell 'round'; expected binary, child-sum, attention");
  EXPECT_EQ(refusal_of("dag", {.cell = "binary"}), "dag: cell 'binary'; expected none, because it has a single cell");
  EXPECT_EQ(refusal_of("dag", {.switches = {"crf"}}),
            "dag: switch 'crf'; expected none, because it has nothing to switch on");
  EXPECT_EQ(refusal_of("bilstm", {.switches = {"tied"}}), "bilstm: switch 'tied'; expected crf");
  EXPECT_EQ(refusal_of("var-lstm", {.samples = 1, .sizes = {{"hidden", 8}}, .switches = {"tied"}}),
            "tied words of width 256 with hidden states of width 8; expected one width");
  EXPECT_EQ(refusal_of("tree-fc", {.data = "trees"}),
            "tree-fc: data folder 'trees'; expected none, because its data are always generated");
  EXPECT_EQ(refusal_of("tree-fc", {.sizes = {{"leaves", 1}}}), "tree-fc: leaves 1; expected at least 2");
  EXPECT_EQ(refusal_of("var-lstm", {.samples = 1, .sizes = {{"vocabulary", 1}}}),
            "var-lstm: vocabulary 1; expected at least 2");
  EXPECT_EQ(refusal_of("tree-lstm", {.graph_mode = true}),
            "tree-lstm: graph mode; expected none, because the structure differs from sample to sample");
  OnHost s;
  EXPECT_EQ(error_of<MisuseError>([&] {
              make_convolutional(
                  s.parameters,
                  {.height = 15, .width = 28, .filters = 1, .more_filters = 1, .hidden = 1, .classes = 2});
            }),
            "make_convolutional: images of 15 x 28; expected at least 16 x 16");
}

TEST(Workloads, AreCheckedBeforeTheyAreMade) {
  EXPECT_EQ(error_of<MisuseError>([] {
              check_workload("bilstm", {.sizes = {{"layers", 65}}});
            }),
            "bilstm: layers 65; expected 1 to 64");
  EXPECT_NO_THROW(check_workload("bilstm", {.data = "nowhere", .sizes = {{"layers", 64}}})) << "nothing is read";
}

TEST(Workloads, OfTwoClassesLeaveNeutralPhrasesAndSentencesOut) {
  const TextFolder folder({{"train.txt", "(3 (2 is) (4 fun))\n(2 (0 bad) (4 fun))\n(0 (1 not) (3 fun))\n"},
                           {"dev.txt", "(1 bad)\n(2 is)\n"},
                           {"neutral.txt", "(2 (0 bad) (4 fun))\n"}});
  const WorkloadOptions options{.data = folder.path.string(), .sizes = {{"classes", 2}}};
  const HostWorkload made("tree-lstm", options);
  const Workload& workload = made.workload;
  ASSERT_EQ(workload.training.size(), 2u);
  EXPECT_EQ(graphs_of(workload).training[0].labels(), (std::vector<std::int32_t>{-1, 1, 1}));
  EXPECT_EQ(graphs_of(workload).training[1].labels(), (std::vector<std::int32_t>{0, 1, 0}));
  EXPECT_EQ(workload.training[0].labels, 2);
  ASSERT_EQ(workload.validation.size(), 1u);
  EXPECT_EQ(graphs_of(workload).validation[0].labels(), std::vector<std::int32_t>{0});
  EXPECT_EQ(workload.network->labels(), (std::vector<std::string>{"negative", "positive"}));
  std::filesystem::rename(folder.path / "neutral.txt", folder.path / "train.txt");
  const std::string why = error_of<DataError>([&] { HostWorkload("tree-lstm", options); });
  EXPECT_EQ(why, (folder.path / "train.txt").string() +
                     ": the roots of all 1 training trees are neutral; expected at least 1 that is not, for 2 classes");
}

TEST(Workloads, CutTextInPiecesOfOneLength) {
  const TextFolder folder({{"train.txt", "a b c\nd e\n"}, {"valid.txt", "a\n"}});
  const HostWorkload made("fixed-lstm", {.data = folder.path.string(), .sizes = {{"steps", 3}}});
  const Workload& workload = made.workload;
  ASSERT_EQ(workload.training.size(), 2u) << "of seven words, ends among them";
  EXPECT_EQ(graphs_of(workload).training[0].labels(), (std::vector<std::int32_t>{2, 3, 4}));
  EXPECT_EQ(graphs_of(workload).training[1].labels(), (std::vector<std::int32_t>{1, 5, 6}));
  EXPECT_EQ(workload.training[1].units, 3);
  EXPECT_TRUE(workload.validation.empty()) << "it is too short";
}

TEST(Workloads, CountUnknownWordsAsTheTextsOwnRareWord) {
  const TextFolder folder({{"train.txt", "a <unk> b\n"}, {"valid.txt", "c b a\n"}, {"other.txt", "a b\n"}});
  const auto labels = [&](Index vocabulary) {
    const HostWorkload made("var-lstm", {.data = folder.path.string(), .sizes = {{"vocabulary", vocabulary}}});
    return graphs_of(made.workload).validation.front().labels();
  };
  EXPECT_EQ(labels(10), (std::vector<std::int32_t>{3, 4, 2, 1}));
  EXPECT_EQ(labels(4), (std::vector<std::int32_t>{3, 3, 2, 1})) << "b does not fit";
  std::filesystem::rename(folder.path / "other.txt", folder.path / "train.txt");
  EXPECT_EQ(labels(10), (std::vector<std::int32_t>{0, 3, 2, 1})) << "the text has no such word";
}

TEST(Workloads, GenerateAsManyPiecesAsTheyAreToldTo) {
  const auto sizes = wide(1, {{"vocabulary", 2}, {"steps", 64}});
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const HostWorkload made("fixed-lstm", {.seed = seed, .samples = 1, .sizes = sizes});
    EXPECT_EQ(made.workload.training.size(), 1u) << "seed " << seed;
    EXPECT_GE(made.workload.validation.size(), 1u) << "seed " << seed;
  }
}

}  // namespace
}  // namespace windrow::testing
