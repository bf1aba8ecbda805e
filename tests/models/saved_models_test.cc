// Models that are made again from checkpoints, and their predictions; and models that begin with the weights of trained
// ones: whatever their words and labels are, and their numbers.
#include "tests/models/training.h"
#include "windrow/models/saved_model.h"

namespace windrow::testing {
namespace {

WorkloadOptions small(std::size_t samples) { return {.samples = samples, .sizes = {{"hidden", 16}}}; }

TEST(Predictions, AreMadeByExactlyTheKindsThatSayWhatTheyRead) {
  const std::string line[] = {"[MAX 2 9 [MIN 4 7 ] ]"};
  std::string able;
  for (const WorkloadKind& kind : workload_kinds()) {
    if (!kind.input.empty()) able += (able.empty() ? "" : ", ") + kind.name;
  }
  for (const WorkloadKind& kind : workload_kinds()) {
    WorkloadOptions options = small(4);
    for (const WorkloadSize& size : kind.sizes) {
      if (size.name == "vocabulary") options.sizes["vocabulary"] = 40;
    }
    const HostWorkload made(kind.name, options, {.workers = 1});
    const auto predict = [&] { return made.workload.network->predict(line).size(); };
    if (kind.input.empty()) {
      EXPECT_EQ(error_of<MisuseError>(predict), "this model predicts nothing from texts; expected one of " + able);
    } else {
      EXPECT_EQ(predict(), 1u) << kind.name;
    }
  }
}

TEST(Predictions, OfListsAreValuesOfTheListAndItsParts) {
  Training run("listops", small(600), {.optimiser = {.rate = workload_kind("listops").learning_rate}});
  run.train(3);
  const Workload& workload = run.workload;
  const std::string lines[] = {"[MAX 2 9 [MIN 4 7 ] ]", "4\t[MIN 4 7 ]"};
  const std::vector<Prediction> predictions = workload.network->predict(lines, {.parts = true});
  EXPECT_TRUE(workload.network->predict(lines)[0].parts.empty());
  const std::vector<std::string> labels = workload.network->labels();
  ASSERT_EQ(predictions.size(), 2u);
  ASSERT_EQ(predictions[0].parts.size(), 2u);
  EXPECT_EQ(predictions[0].parts[0].text, "[MIN 4 7 ]");
  EXPECT_EQ(predictions[0].parts[1].text, lines[0]);
  EXPECT_EQ(predictions[0].label->probabilities, predictions[0].parts[1].label.probabilities);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    EXPECT_NEAR(predictions[1].label->probabilities[i], predictions[0].parts[0].label.probabilities[i], 1e-5) << i;
  }
  EXPECT_EQ(labels[predictions[0].label->number].size(), 1u);
  const auto refused = [&](const std::string& line) {
    return refusal([&] { workload.network->predict(std::vector{line}); });
  };
  EXPECT_EQ(refused("7"), "input 1: 7 is a digit; expected a list, such as [MAX 2 9 ]");
  EXPECT_EQ(refused("[MAX 2"), "input 1:1:7: the line ends inside a list; expected ']'");
  EXPECT_EQ(refused("3\t[MAX 2 4 ]"), "input 1:1:1: value 3; expected 4, the value of the tree");
}

TEST(Predictions, OfSentencesAreTreesWithOneRoot) {
  WorkloadOptions options = small(64);
  options.sizes["scorer"] = 16;
  Training run("parser", options, {.optimiser = {.rate = workload_kind("parser").learning_rate}});
  run.train(1);
  const Workload& workload = run.workload;
  const std::string known = workload.vocabularies.at("words")[3], tag = workload.vocabularies.at("usual tags")[3];
  ASSERT_FALSE(tag.empty());
  const std::string lines[] = {known + " zebra|NOUN zebra", "a|b|X"};
  const std::vector<Prediction> predictions = workload.network->predict(lines);
  ASSERT_EQ(predictions[0].words.size(), 3u);
  EXPECT_EQ(predictions[0].words[0].tag, tag);
  EXPECT_EQ(predictions[0].words[1].tag, "NOUN");
  EXPECT_EQ(predictions[0].words[2].tag, "");
  EXPECT_EQ(predictions[1].words[0].form, "a|b");
  for (const Prediction& prediction : predictions) {
    const auto roots = std::ranges::count(prediction.words, 0, &Prediction::Word::head);
    EXPECT_EQ(roots, 1);
    for (const Prediction::Word& word : prediction.words) EXPECT_FALSE(word.relation.empty());
  }
  EXPECT_EQ(refusal([&] {
              workload.network->predict(std::vector<std::string>{"a", "b|"});
            }),
            "input 2: 'b|' has no tag; expected word|TAG");
}

struct TunedModel {
  const char* name;
  WorkloadOptions options = {};
};

void PrintTo(const TunedModel& value, std::ostream* out) {
  *out << value.name << " " << value.options.cell;
  for (const std::string& one : value.options.switches) *out << " " << one;
}

void fill_randomly(const Workload& workload, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> draw(-0.3f, 0.3f);
  change_values(*workload.parameters, [&](float) { return draw(random); });
}

class EveryTunedModel : public ::testing::TestWithParam<TunedModel> {
 protected:
  Workload make(const Vocabularies& vocabularies = {}, std::uint64_t seed = 1) const {
    WorkloadOptions options = GetParam().options;
    options.samples = 80;
    options.seed = seed;
    options.vocabularies = vocabularies;
    for (const WorkloadSize& size : workload_kind(GetParam().name).sizes) {
      if (size.name != "layers" && size.name != "vocabulary" && size.name != "classes") options.sizes[size.name] = 8;
    }
    return make_workload(GetParam().name, host_device(engine), options);
  }
  std::vector<double> scores(Workload& workload) const {
    Trainer trainer(host_device(engine), workload, {.minibatch = 16});
    std::vector<double> all;
    for (const Metric& metric : trainer.evaluate()) all.push_back(metric.value);
    if (trainer.validation_loss()) all.push_back(*trainer.validation_loss());
    return all;
  }

  mutable Engine engine;
};

TEST_P(EveryTunedModel, HasTheScoresOfTheTrainedOneWhateverTheNumbersOfItsWordsAndLabels) {
  Workload trained = make();
  fill_randomly(trained, 1);
  Vocabularies reversed = trained.vocabularies;
  for (auto& [name, words] : reversed) std::ranges::reverse(words);
  Workload other = make(reversed);
  fill_randomly(other, 2);
  const std::vector<double> expected = scores(trained);
  const TakenWeights taken = take_weights(other, trained);
  EXPECT_EQ(taken.parameters, trained.parameters->size());
  for (const TakenWeights::Names& names : taken.names) EXPECT_EQ(names.found, names.of) << names.what;
  const std::vector<double> found = scores(other);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 2e-4 * std::abs(expected[i])) << i;
}

TEST_P(EveryTunedModel, KeepsWhatTheTrainedOneDoesNotName) {
  Workload trained = make(), other = make({}, 2);  // other samples, so other words
  fill_randomly(trained, 1);
  fill_randomly(other, 2);
  const Parameters& parameters = *other.parameters;
  const std::vector<Floats> before = parameters_of(other);
  take_weights(other, trained);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::string& name = parameters.name(parameters[i]);
    const Tensor own = parameters.value(parameters[i]),
                 from = trained.parameters->value(trained.parameters->find(name));
    const auto names_of = [&](const Workload& workload, NamedAxis::Of of) -> const std::vector<std::string>* {
      for (const NamedAxis& axis : workload.named_axes) {
        if (axis.of == of && workload.parameters->name(axis.parameter) == name) return &axis.names;
      }
      return nullptr;
    };
    /// The number of the trained model's row or column; -1 for none; none for one that stands for no single word.
    const auto origin = [&](NamedAxis::Of of, Index number) -> std::optional<Index> {
      const auto *const names = names_of(other, of), *const others = names_of(trained, of);
      if (names == nullptr) return number;
      const std::string& word = (*names)[static_cast<std::size_t>(number)];
      if (word.empty()) return {};
      const auto found = std::ranges::find(*others, word);
      return found == others->end() ? -1 : found - others->begin();
    };
    const std::vector<float> values = own.get(), trained_values = from.get();
    for (Index row = 0; row < own.rows(); ++row) {
      for (Index column = 0; column < own.width(); ++column) {
        const auto at = static_cast<std::size_t>(row * own.width() + column);
        const auto from_row = origin(NamedAxis::Of::rows, row), from_column = origin(NamedAxis::Of::columns, column);
        if (!from_row || !from_column) continue;
        const bool kept = *from_row < 0 || *from_column < 0;
        ASSERT_EQ(values[at], kept ? before[i][at]
                                   : trained_values[static_cast<std::size_t>(*from_row * from.width() + *from_column)])
            << name << " " << row << " " << column;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryTunedModel,
                         ::testing::Values(TunedModel{"tree-lstm"}, TunedModel{"tree-lstm", {.cell = "attention"}},
                                           TunedModel{"tree-fc"}, TunedModel{"fixed-lstm"}, TunedModel{"var-lstm"},
                                           TunedModel{"var-lstm", {.switches = {"tied"}}}, TunedModel{"bilstm"},
                                           TunedModel{"bilstm", {.switches = {"crf"}}}, TunedModel{"bilstm-char"},
                                           TunedModel{"listops"}, TunedModel{"dag"}, TunedModel{"seq2seq"},
                                           TunedModel{"parser"}, TunedModel{"mlp"}, TunedModel{"cnn"}));

TEST(FineTuning, RefusesAnotherModelAndLeavesTheParametersAlone) {
  Engine engine;
  const Device host = host_device(engine);
  const auto tagger = [&](Index hidden, Index layers) {
    return make_workload("bilstm", host,
                         {.samples = 20, .sizes = {{"hidden", hidden}, {"embedding", 8}, {"layers", layers}}});
  };
  Workload model = tagger(8, 1);
  const std::vector<float> words = model.parameters->value(model.embedding->table).get();
  const auto refused = [&](const Workload& other) {
    const std::string why = error_of<MisuseError>([&] { take_weights(model, other); });
    EXPECT_EQ(model.parameters->value(model.embedding->table).get(), words);
    return why;
  };
  const std::string wide = refused(tagger(16, 1));
  EXPECT_TRUE(wide.starts_with("parameter '") && wide.find("; expected ") != wide.npos) << wide;
  const std::string deep = refused(tagger(8, 2));
  EXPECT_TRUE(deep.starts_with("a parameter '") && deep.ends_with("'; expected none")) << deep;
  EXPECT_EQ(refused(make_workload("var-lstm", host, {.samples = 8})), "a model var-lstm; expected bilstm");
}

}  // namespace
}  // namespace windrow::testing
