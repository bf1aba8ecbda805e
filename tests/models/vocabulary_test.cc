// Numbers for words, and the characters of words.
#include <gtest/gtest.h>

#include <ranges>

#include "windrow/models/datasets.h"

namespace windrow {
namespace {

using WordList = std::vector<std::string>;

TEST(Vocabulary, SharesOneNumberAmongRareAndUnknownWords) {
  const WordList words = {"a", "b", "a", "c", "b"};
  const Vocabulary vocabulary(words, 2);
  EXPECT_EQ(vocabulary.size(), 3);
  EXPECT_NE(vocabulary.number("a"), vocabulary.number("b"));
  EXPECT_EQ(vocabulary.number("c"), vocabulary.number("never seen"));
  EXPECT_NE(vocabulary.number("a"), vocabulary.number("c"));
  EXPECT_EQ(Vocabulary(words, 1).size(), 4);
  EXPECT_EQ(Vocabulary(words, -1).size(), 4);
}

TEST(Vocabulary, NumbersWordsInTheOrderInWhichTheyWereFirstSeen) {
  const Vocabulary vocabulary(WordList{"late", "once", "early", "early", "late"}, 2);
  EXPECT_EQ(vocabulary.number("late"), 1);
  EXPECT_EQ(vocabulary.number("early"), 2);
}

TEST(Vocabulary, PassesOverEmptyWords) {
  const Vocabulary vocabulary(WordList{"", "a", ""}, 1);
  EXPECT_EQ(vocabulary.size(), 2);
  EXPECT_EQ(vocabulary.number(""), Vocabulary::unknown);
}

TEST(Vocabulary, IsMadeOfAnyRangeOfStrings) {
  const std::vector<WordList> sentences = {{"a", "b"}, {"a"}};
  EXPECT_EQ(Vocabulary(sentences | std::views::join, 1).size(), 3);
  const auto doubled = [](const std::string& word) { return word + word; };
  EXPECT_EQ(Vocabulary(sentences | std::views::join | std::views::transform(doubled), 2).number("aa"), 1);
  const char* const tags[] = {"NOUN", "VERB"};
  EXPECT_EQ(Vocabulary(tags, 1).number("VERB"), 2);
  EXPECT_EQ(Vocabulary(WordList{}, 1).size(), 1);
}

TEST(Vocabulary, NumbersCharacters) {
  WordCounts counts;
  for (const char* word : {"Zo\xc3\xab", "Zo"}) {
    for (const std::string_view letter : characters(word)) counts.add(letter);
  }
  const Vocabulary letters(counts, 1);
  EXPECT_EQ(letters.size(), 4);
  EXPECT_EQ(letters.number("\xc3\xab"), 3);
}

TEST(Characters, AreCodePoints) {
  using Parts = std::vector<std::string_view>;
  EXPECT_EQ(characters(""), Parts{});
  EXPECT_EQ(characters("a\xc3\xab\xe2\x82\xac\xf0\x9f\x90\x88z"),
            (Parts{"a", "\xc3\xab", "\xe2\x82\xac", "\xf0\x9f\x90\x88", "z"}));
}

TEST(Characters, AreBytesWhereTheTextIsNoUtf8) {
  using Parts = std::vector<std::string_view>;
  EXPECT_EQ(characters("\xab\xc3"), (Parts{"\xab", "\xc3"}));
  EXPECT_EQ(characters("\xe2\x82z"), (Parts{"\xe2", "\x82", "z"}));
  EXPECT_EQ(characters("\xff\xf9\xc0\x80"), (Parts{"\xff", "\xf9", "\xc0", "\x80"}));
}

}  // namespace
}  // namespace windrow
