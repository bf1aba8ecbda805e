// Predictions for texts, and models that are made again from checkpoints.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/models/refusal.h"
#include "windrow/models/saved_model.h"
#include "windrow/models/trainer.h"
#include "windrow/training/tensor_file.h"

namespace windrow {
namespace {

WorkloadOptions small(std::size_t samples) { return {.samples = samples, .sizes = {{"hidden", 16}}}; }

TEST(Predictions, AreMadeByExactlyTheKindsThatSayWhatTheyRead) {
  Engine engine({.workers = 1});
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
    const Workload workload = make_workload(kind.name, host_device(engine), options);
    if (!kind.input.empty()) {
      EXPECT_EQ(workload.network->predict(line).size(), 1u) << kind.name;
      continue;
    }
    try {
      workload.network->predict(line);
      ADD_FAILURE() << kind.name;
    } catch (const MisuseError& error) {
      EXPECT_EQ(error.what(), "this model predicts nothing from texts; expected one of " + able);
    }
  }
}

TEST(Predictions, OfListsAreValuesOfTheListAndItsParts) {
  Engine engine({.workers = 2});
  Workload workload = make_workload("listops", host_device(engine), small(600));
  Trainer trainer(host_device(engine), workload, {.optimiser = {.rate = workload.kind->learning_rate}});
  for (int epoch = 0; epoch < 3; ++epoch) trainer.train();
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
  Engine engine({.workers = 2});
  WorkloadOptions options = small(64);
  options.sizes["scorer"] = 16;
  Workload workload = make_workload("parser", host_device(engine), options);
  Trainer trainer(host_device(engine), workload, {.optimiser = {.rate = workload.kind->learning_rate}});
  trainer.train();
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

}  // namespace
}  // namespace windrow
