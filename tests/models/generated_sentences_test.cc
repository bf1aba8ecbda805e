// The made-up language: it has the statistics that datasets.h states, and can be learned.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <sstream>

#include "tests/mix.h"
#include "windrow/models/datasets.h"

namespace windrow {
namespace {

std::vector<Sentence> generated_sentences(std::size_t count, std::uint64_t seed) {
  std::istringstream in(generate_sentences(count, seed));
  return read_sentences(in, "generated");
}

std::vector<TaggedSentence> generated_tagged(std::size_t count, std::uint64_t seed) {
  std::istringstream in(generate_tagged_sentences(count, seed));
  return read_tagged_sentences(in, "generated");
}

using Counts = std::map<std::string, int>;

std::vector<int> descending(const Counts& counts) {
  std::vector<int> result;
  for (const auto& [word, count] : counts) result.push_back(count);
  std::sort(result.rbegin(), result.rend());
  return result;
}

int sum_of_first(const std::vector<int>& counts, std::size_t n) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(std::min(n, counts.size())), 0);
}

TEST(GeneratedSentences, FollowTheStatisticsOfThePennTreebank) {
  for (std::uint64_t seed : {1, 2, 3}) {
    Counts counts;
    int words = 0;
    std::size_t longest = 0;
    const std::vector<Sentence> sentences = generated_sentences(7131, seed);
    for (const Sentence& sentence : sentences) {
      for (const std::string& word : sentence) ++counts[word], ++words;
      longest = std::max(longest, sentence.size());
    }
    EXPECT_EQ(sentences.size(), 7131u) << "seed " << seed;
    EXPECT_NEAR(words / 7131.0, 20.9, 0.5) << "seed " << seed;
    EXPECT_LE(longest, 75u) << "seed " << seed;
    const double all = words;
    EXPECT_NEAR(descending(counts)[0] / all, 0.06, 0.01) << "seed " << seed;
    EXPECT_NEAR(sum_of_first(descending(counts), 100) / all, 0.54, 0.03) << "seed " << seed;
    EXPECT_NEAR(counts["<unk>"] / all, 0.05, 0.02) << "seed " << seed;
    EXPECT_NEAR(counts["N"] / all, 0.04, 0.02) << "seed " << seed;
  }
}

TEST(GeneratedSentences, AreTheSameForTheSameSeed) {
  EXPECT_EQ(generate_sentences(20, 7), generate_sentences(20, 7));
  EXPECT_NE(generate_sentences(20, 7), generate_sentences(20, 8));
  EXPECT_EQ(testing::digest(generate_sentences(4000, 1)), 0x95c33c219cfdb845u);
  EXPECT_EQ(generate_sentences(2, 1),
            "dono ba <unk> tubo fo do\nba <unk> kibe go bu lilo labu ni pa fina ma lefuba fi ba tuniba duve bu\n");
}

TEST(GeneratedTaggedSentences, FollowTheStatisticsOfWikiNer) {
  for (std::uint64_t seed : {1, 2, 3}) {
    std::map<std::string, int> tags, names;
    int words = 0, once = 0;
    const auto sentences = generated_tagged(1696, seed);
    for (const TaggedSentence& sentence : sentences) {
      for (std::size_t i = 0; i < sentence.tags.size(); ++i) {
        ++words, ++tags[sentence.tags[i]];
        if (sentence.tags[i] != "O") ++names[sentence.words[i]];
      }
    }
    for (const auto& [name, count] : names) once += count == 1;
    EXPECT_EQ(tags.size(), 5u) << "seed " << seed;
    EXPECT_NEAR(words / 1696.0, 23, 1) << "seed " << seed;
    EXPECT_NEAR(tags["O"], 0.835 * words, 0.02 * words) << "seed " << seed;
    EXPECT_NEAR(tags["I-ORG"], 0.050 * words, 0.01 * words) << "seed " << seed;
    EXPECT_NEAR(tags["I-PER"], 0.042 * words, 0.01 * words) << "seed " << seed;
    EXPECT_NEAR(tags["I-LOC"], 0.037 * words, 0.01 * words) << "seed " << seed;
    EXPECT_NEAR(tags["I-MISC"], 0.036 * words, 0.01 * words) << "seed " << seed;
    EXPECT_GT(2 * once, static_cast<int>(names.size())) << "seed " << seed;
  }
}

TEST(GeneratedTaggedSentences, AreTheSameForTheSameSeed) {
  EXPECT_EQ(generate_tagged_sentences(20, 7), generate_tagged_sentences(20, 7));
  EXPECT_NE(generate_tagged_sentences(20, 7), generate_tagged_sentences(20, 8));
  EXPECT_EQ(testing::digest(generate_tagged_sentences(4000, 1)), 0xe368c25c18d02c85u);
  EXPECT_EQ(generate_tagged_sentences(1, 1), "Dono|O kudi|O be|O do|O fe|O boba|O zo|O nobu|O po|O labu|O .|O\n");
}

}  // namespace
}  // namespace windrow
