// The published data, where WINDROW_DATA names the folder that holds them: their known counts. Data are under terms of
// their own, so none are here.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <random>
#include <ranges>
#include <span>
#include <string>
#include <vector>

#include "windrow/models/datasets.h"
#include "windrow/models/workload.h"
#include "windrow/training/internal/deal.h"

namespace windrow {
namespace {

/// Empty if WINDROW_DATA is not set.
std::filesystem::path file(const char* name) {
  const char* const folder = std::getenv("WINDROW_DATA");
  return folder == nullptr ? std::filesystem::path() : std::filesystem::path(folder) / name;
}

/// Why a test of this file has to be skipped; empty if it need not be.
std::string absence(const char* name) {
  if (file(name).empty()) return "WINDROW_DATA names no folder with published data";
  return std::filesystem::exists(file(name)) ? "" : file(name).string() + " does not exist";
}

TEST(PublishedData, PennTreebankHasItsCounts) {
  if (const std::string why = absence("ptb/valid.txt"); !why.empty()) GTEST_SKIP() << why;
  const auto valid = read_sentences(file("ptb/valid.txt"));
  WordCounts words;
  std::size_t tokens = 0;
  for (const std::string& word : valid | std::views::join) words.add(word), ++tokens;
  EXPECT_EQ(valid.size(), 3370u);
  EXPECT_EQ(tokens, 70390u);
  EXPECT_EQ(Vocabulary(words, 1).size(), 6021 + 1);
}

TEST(PublishedData, WikiNerHasItsCounts) {
  if (const std::string why = absence("wikiner/all.txt"); !why.empty()) GTEST_SKIP() << why;
  const auto sentences = read_tagged_sentences(file("wikiner/all.txt"));
  WordCounts words, tags, letters;
  std::size_t tokens = 0;
  for (const TaggedSentence& sentence : sentences) {
    ASSERT_EQ(sentence.words.size(), sentence.tags.size());
    tokens += sentence.words.size();
    for (const std::string& tag : sentence.tags) tags.add(tag);
    for (const std::string& word : sentence.words) {
      words.add(word);
      for (const std::string_view letter : characters(word)) letters.add(letter);
    }
  }
  EXPECT_EQ(sentences.size(), 1696u);
  EXPECT_EQ(tokens, 39007u);
  EXPECT_EQ(Vocabulary(words, 1).size(), 8504 + 1);
  EXPECT_EQ(Vocabulary(words, 5).size(), 1078 + 1);
  EXPECT_EQ(Vocabulary(tags, 1).size(), 5 + 1);
  EXPECT_EQ(Vocabulary(letters, 1).size(), 155 + 1);
}

TEST(PublishedData, EnglishWebTreebankHasItsCounts) {
  if (const std::string why = absence("ud-ewt/dev.conllu"); !why.empty()) GTEST_SKIP() << why;
  const auto sentences = read_conllu(file("ud-ewt/dev.conllu"));
  std::size_t words = 0, empty_nodes = 0, shared = 0, crossed = 0, cut = 0;
  for (const DependencySentence& sentence : sentences) {
    words += sentence.heads.size();
    empty_nodes += sentence.forms.size() - sentence.heads.size();
    crossed += !projective(sentence);
    std::size_t arcs = 0;
    for (const std::vector<Arc>& heads : sentence.enhanced) {
      shared += heads.size() > 1;
      for (const Arc& arc : heads) arcs += arc.head != 0;
    }
    cut += enhanced_graph(sentence).children.size() < arcs;
  }
  EXPECT_EQ(sentences.size(), 2001u);
  EXPECT_EQ(words, 25147u);
  EXPECT_EQ(empty_nodes, 4u);
  EXPECT_EQ(shared, 1141u);
  EXPECT_EQ(crossed, 31u);
  EXPECT_EQ(cut, 203u);
}

TEST(PublishedData, StanfordTreebankHasItsCounts) {
  if (const std::string why = absence("sst/train.txt"); !why.empty()) GTEST_SKIP() << why;
  const auto trees = read_treebank(file("sst/train.txt"));
  std::size_t vertices = 0;
  for (const LabelledTree& tree : trees) vertices += tree.words.size();
  EXPECT_EQ(trees.size(), 8544u);
  EXPECT_EQ(vertices, 318582u);
  EXPECT_EQ(with_two_labels(trees).size(), 6920u);
}

/// Of random minibatches, all but the last one of an epoch.
TEST(PublishedData, StanfordTreebankIsDealtOutInPartsOfEqualWork) {
  if (const std::string why = absence("sst/train.txt"); !why.empty()) GTEST_SKIP() << why;
  constexpr std::size_t minibatch = 256;
  constexpr int members = 4;
  std::vector<std::int64_t> sizes;
  for (const LabelledTree& tree : read_treebank(file("sst/train.txt"))) sizes.push_back(std::ssize(tree.words));
  std::mt19937 random(1);
  std::ranges::shuffle(sizes, random);
  for (std::size_t begin = 0; begin + minibatch <= sizes.size(); begin += minibatch) {
    const std::span work = std::span(sizes).subspan(begin, minibatch);
    std::int64_t most = 0;
    for (const auto& part : deal(work, members)) {
      std::int64_t sum = 0;
      for (const std::size_t sample : part) sum += work[sample];
      most = std::max(most, sum);
    }
    const auto equal = static_cast<double>(std::accumulate(work.begin(), work.end(), std::int64_t{0})) / members;
    EXPECT_LE(static_cast<double>(most) / equal, 1.03);
  }
}

struct Load {
  const char *name, *folder, *file, *validation_file;
  std::size_t training, validation;
  double units, flops;  ///< of the training set
};

void PrintTo(const Load& load, std::ostream* out) { *out << load.name; }

class PublishedWorkload : public ::testing::TestWithParam<Load> {};

TEST_P(PublishedWorkload, HasItsTrainingAndValidationSets) {
  const Load& expected = GetParam();
  const std::string needed = std::string(expected.folder) + "/" + expected.file;
  if (const std::string why = absence(needed.c_str()); !why.empty()) GTEST_SKIP() << why;
  Engine engine;
  WorkloadOptions options = {.data = file(expected.folder).string()};
  options.training_file = expected.file;
  options.validation_file = expected.validation_file;
  const Workload workload = make_workload(expected.name, host_device(engine), options);
  double units = 0, flops = 0;
  for (const Sample& sample : workload.training) units += static_cast<double>(sample.units), flops += sample.flops;
  EXPECT_EQ(workload.training.size(), expected.training);
  EXPECT_EQ(workload.validation.size(), expected.validation);
  EXPECT_EQ(units, expected.units);
  EXPECT_NEAR(flops / units, expected.flops, 5e-3 * expected.flops);
}

INSTANTIATE_TEST_SUITE_P(
    All, PublishedWorkload,
    ::testing::Values(Load{"tree-lstm", "sst", "train.txt", "dev.txt", 8544, 1101, 8544, 26.7e6},
                      Load{"fixed-lstm", "ptb", "valid.txt", "test.txt", 1152, 1287, 73728, 14.4e6},
                      Load{"var-lstm", "ptb", "valid.txt", "test.txt", 3370, 3761, 73760, 6.15e6},
                      Load{"bilstm", "wikiner", "all.txt", "", 1527, 169, 1527, 47.0e6},
                      Load{"bilstm-char", "wikiner", "all.txt", "", 1527, 169, 1527, 63.6e6},
                      Load{"dag", "ud-ewt", "dev.conllu", "test.conllu", 2001, 2077, 2001, 10.7e6},
                      Load{"parser", "ud-ewt", "dev.conllu", "test.conllu", 1970, 2077, 1970, 17.9e6}),
    [](const auto& load) {
      std::string name = load.param.name;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

}  // namespace
}  // namespace windrow
