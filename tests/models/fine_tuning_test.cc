// Models that begin with the weights of trained ones: whatever their words and labels are, and their numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/engine/support.h"
#include "windrow/models/saved_model.h"
#include "windrow/models/trainer.h"

namespace windrow {
namespace {

using testing::error_of;

struct TunedModel {
  const char* name;
  WorkloadOptions options = {};
};

void PrintTo(const TunedModel& value, std::ostream* out) {
  *out << value.name << " " << value.options.cell;
  for (const std::string& one : value.options.switches) *out << " " << one;
}

void fill_randomly(Workload& workload, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> draw(-0.3f, 0.3f);
  Parameters& parameters = *workload.parameters;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Tensor value = parameters.value(parameters[i]);
    std::vector<float> numbers = value.get();
    std::ranges::generate(numbers, [&] { return draw(random); });
    value.set(numbers);
  }
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
  std::vector<std::vector<float>> before;
  for (std::size_t i = 0; i < parameters.size(); ++i) before.push_back(parameters.value(parameters[i]).get());
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
}  // namespace windrow
