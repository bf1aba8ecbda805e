// The made-up language: it has the statistics that datasets.h states, and can be learned.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <sstream>

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

TEST(GeneratedSentences, HaveWordsThatFollowFromTheOnesBefore) {
  std::map<std::string, Counts> followers;
  for (const Sentence& sentence : generated_sentences(20000, 4)) {
    for (std::size_t i = 1; i < sentence.size(); ++i) ++followers[sentence[i - 1]][sentence[i]];
  }
  int all = 0, preferred = 0;
  for (const auto& [before, counts] : followers) {
    const std::vector<int> often = descending(counts);
    const int times = sum_of_first(often, often.size());
    if (times < 1000) continue;
    all += times;
    preferred += sum_of_first(often, 4);
  }
  EXPECT_GT(all, 100000);
  EXPECT_NEAR(static_cast<double>(preferred) / all, 0.55, 0.1);
}

TEST(GeneratedSentences, SpeakOneLanguageWhateverTheSeed) {
  std::map<Sentence, int> pairs, others;
  const auto count = [](std::uint64_t seed, std::map<Sentence, int>& into) {
    for (const Sentence& sentence : generated_sentences(5000, seed)) {
      for (std::size_t i = 1; i < sentence.size(); ++i) ++into[{sentence[i - 1], sentence[i]}];
    }
  };
  count(5, pairs);
  count(6, others);
  int frequent = 0;
  for (const auto& [pair, times] : pairs) {
    if (times < 100) continue;
    ++frequent;
    EXPECT_GT(others[pair], 50) << pair[0] << " " << pair[1];
  }
  EXPECT_GT(frequent, 50);
}

TEST(GeneratedSentences, AreTheSameForTheSameSeed) {
  EXPECT_EQ(generate_sentences(20, 7), generate_sentences(20, 7));
  EXPECT_NE(generate_sentences(20, 7), generate_sentences(20, 8));
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

bool company(const std::string& word) { return word == "Group" || word == "Union" || word == "Corp"; }

/// By what datasets.h says of endings; of words that follow others.
std::string tag_of(const std::string& word, const std::string& before) {
  if (word == "." || std::string("aeiou").find(word.back()) != std::string::npos) return "O";
  for (const char* ending : {"son", "mir"})
    if (word.ends_with(ending)) return "I-PER";
  for (const char* ending : {"ton", "land"})
    if (word.ends_with(ending)) return "I-LOC";
  for (const char* ending : {"ish", "ot"})
    if (word.ends_with(ending)) return "I-MISC";
  if (word.ends_with("en")) return before == "bu" || before == "Bu" ? "I-LOC" : "I-PER";
  return company(word) ? "I-ORG" : "none";
}

TEST(GeneratedTaggedSentences, HaveTagsThatFollowFromCharactersAndNeighbours) {
  Counts seen;
  for (const TaggedSentence& sentence : generated_tagged(3000, 4)) {
    const Sentence& words = sentence.words;
    std::vector<std::string> expected;
    for (std::size_t i = 0; i < words.size(); ++i) expected.push_back(tag_of(words[i], i > 0 ? words[i - 1] : ""));
    for (std::size_t i = words.size() - 1; i-- > 0;) {
      if (expected[i + 1] == "I-ORG" && expected[i] != "O") expected[i] = "I-ORG";
    }
    ASSERT_EQ(sentence.tags, expected);
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (words[i].ends_with("en")) ++seen[expected[i]];
    }
  }
  EXPECT_GT(seen["I-LOC"], 50);
  EXPECT_GT(seen["I-PER"], 50);
  EXPECT_GT(seen["I-ORG"], 50);
}

TEST(GeneratedTaggedSentences, AreTheSameForTheSameSeed) {
  EXPECT_EQ(generate_tagged_sentences(20, 7), generate_tagged_sentences(20, 7));
  EXPECT_NE(generate_tagged_sentences(20, 7), generate_tagged_sentences(20, 8));
  EXPECT_EQ(generate_tagged_sentences(1, 1), "Dono|O kudi|O be|O do|O fe|O boba|O zo|O nobu|O po|O labu|O .|O\n");
}

}  // namespace
}  // namespace windrow
