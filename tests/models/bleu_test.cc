// BLEU against examples that were computed by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "windrow/models/parallel_text.h"

namespace windrow {
namespace {

Sentence words(const std::string& text) {
  std::istringstream in(text);
  Sentence result;
  for (std::string word; in >> word;) result.push_back(word);
  return result;
}

Bleu bleu(const std::vector<std::pair<std::string, std::string>>& pairs) {
  Bleu result;
  for (const auto& [translation, reference] : pairs) result.add(words(translation), words(reference));
  return result;
}

void expect_precisions(const Bleu& of, const std::array<double, 4>& expected) {
  for (std::size_t i = 0; i < 4; ++i) EXPECT_DOUBLE_EQ(of.precisions()[i], expected[i]) << i + 1;
}

TEST(Bleu, IsAHundredForTheReferenceItself) {
  const Bleu same =
      bleu({{"the cat is on the mat", "the cat is on the mat"}, {"it sat there today", "it sat there today"}});
  expect_precisions(same, {1, 1, 1, 1});
  EXPECT_DOUBLE_EQ(same.score(), 100);
}

TEST(Bleu, CountsNgramsAsOftenAsTheReferenceHasThem) {
  // The example of Papineni et al.: "the" counts twice. Higher orders have no match, hence 1/2, 1/4 and 1/8 of one.
  const Bleu the = bleu({{"the the the the the the the", "the cat is on the mat"}});
  expect_precisions(the, {2. / 7, 1. / 2 / 6, 1. / 4 / 5, 1. / 8 / 4});
  EXPECT_NEAR(the.score(), 100 * std::pow(2. / 7 / 12 / 20 / 32, 0.25), 1e-9);
}

TEST(Bleu, IsLowerForShorterTranslations) {
  const Bleu shorter = bleu({{"a b c d", "a b c d e"}}), longer = bleu({{"a b c d e", "a b c d"}});
  EXPECT_DOUBLE_EQ(shorter.brevity_penalty(), std::exp(-0.25));
  EXPECT_NEAR(shorter.score(), 77.8800783, 1e-6);
  EXPECT_EQ(longer.brevity_penalty(), 1);
  expect_precisions(longer, {4. / 5, 3. / 4, 2. / 3, 1. / 2});
  EXPECT_NEAR(longer.score(), 100 * std::pow(0.2, 0.25), 1e-9);
}

TEST(Bleu, CountsOverAllSentencesTogether) {
  // Matches: 5 and 3 of 6 and 4 words; 3 and 1 of 5 and 3 pairs; 2 and 0 of 4 and 2; 1 and 0 of 3 and 1.
  const Bleu both = bleu({{"the cat sat on the mat", "the cat sat on a mat"}, {"he is not here", "here is not she"}});
  expect_precisions(both, {8. / 10, 4. / 8, 2. / 6, 1. / 4});
  EXPECT_EQ(both.brevity_penalty(), 1);
  EXPECT_NEAR(both.score(), 100 * std::pow(0.8 * 0.5 / 3 * 0.25, 0.25), 1e-9);
}

TEST(Bleu, IsZeroWithoutAMatchOrWithoutLongNgrams) {
  EXPECT_EQ(Bleu().score(), 0);
  EXPECT_EQ(bleu({{"", "a b c d"}}).score(), 0);
  EXPECT_EQ(bleu({{"a b c d", "e f g h"}}).score(), 0);
  EXPECT_EQ(bleu({{"a b c", "a b c"}}).score(), 0) << "no four words";
  EXPECT_EQ(bleu({{"a b c", "a b c"}, {"", "d"}}).brevity_penalty(), std::exp(1 - 4. / 3));
  EXPECT_EQ(bleu({{"a b c d", ""}}).score(), 0);
}

}  // namespace
}  // namespace windrow
