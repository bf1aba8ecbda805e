// Plain and tagged sentences, read from text; numbers for words, and the characters of words.
#include <ranges>

#include "tests/models/data.h"

namespace windrow::testing {
namespace {

using WordList = std::vector<std::string>;

TEST(Sentences, AreLinesOfWordsBetweenBlanks) {
  EXPECT_EQ(parsed(read_sentences, " no it was n't \n<unk>\tN\n"),
            (std::vector<Sentence>{{"no", "it", "was", "n't"}, {"<unk>", "N"}}));
}

TEST(Sentences, MayHaveAByteOrderMarkForeignLineEndsAndBlankLines) {
  EXPECT_EQ(parsed(read_sentences, "\xef\xbb\xbfone\r\n\r\n \t\ntwo words\r"),
            (std::vector<Sentence>{{"one"}, {"two", "words"}}));
}

TEST(Sentences, KeepWhateverBytesAWordHas) {
  const std::string word("\xff|\x01");
  EXPECT_EQ(parsed(read_sentences, "a " + word + "\n"), (std::vector<Sentence>{{"a", word}}));
}

TEST(Sentences, MayBeLong) {
  constexpr std::size_t words = 1000000;
  std::string text;
  for (std::size_t i = 0; i < words; ++i) text += "a ";
  EXPECT_EQ(parsed(read_sentences, text)[0].size(), words);
  EXPECT_EQ(parsed(read_sentences, std::string(words, 'a'))[0][0].size(), words);
}

TEST(Sentences, AreRefusedWhereThereAreNone) {
  const std::string error = "1:1: no sentence; expected one per line, such as no it was n't";
  expect_refused(read_sentences, {{"", error}, {"\xef\xbb\xbf\n \r\n", error}});
}

TEST(Sentences, SayWhichFileCannotBeRead) {
  expect_no_file_refused([](const auto& file) { read_sentences(file); }, "sentences, one per line");
  expect_no_file_refused([](const auto& file) { read_tagged_sentences(file); }, "tagged sentences, one per line");
}

TEST(TaggedSentences, HaveATagBehindTheLastBar) {
  const auto sentences = parsed(read_tagged_sentences, "in|O Paris|I-LOC\r\n\nParis|NNP|I-LOC");
  ASSERT_EQ(sentences.size(), 2u);
  EXPECT_EQ(sentences[0].words, (Sentence{"in", "Paris"}));
  EXPECT_EQ(sentences[0].tags, (std::vector<std::string>{"O", "I-LOC"}));
  EXPECT_EQ(sentences[1].words, Sentence{"Paris"});
  EXPECT_EQ(sentences[1].tags, std::vector<std::string>{"I-LOC"});
}

TEST(TaggedSentences, MayHaveABarAsAWord) {
  const auto sentences = parsed(read_tagged_sentences, "||O |a|O");
  EXPECT_EQ(sentences[0].words, (Sentence{"|", "|a"}));
  EXPECT_EQ(sentences[0].tags, (std::vector<std::string>{"O", "O"}));
  const auto divided = parsed(read_tagged_sentences, "a|b|NN|O ||SYM|O c|NN|I-PER\na|b|O c|O");
  EXPECT_EQ(divided[0].words, (Sentence{"a|b", "|", "c"})) << "with parts of speech";
  EXPECT_EQ(divided[0].tags, (std::vector<std::string>{"O", "O", "I-PER"}));
  EXPECT_EQ(divided[1].words, (Sentence{"a|b", "c"})) << "without";
}

TEST(TaggedSentences, AreRefusedInOneLine) {
  expect_refused(read_tagged_sentences, {{" \n", "1:1: no sentence; expected one per line, such as in|O Paris|I-LOC"},
                                         {"a|O\n  b|O c", "2:7: 'c' has no tag; expected word|TAG"},
                                         {"\xef\xbb\xbf"
                                          "a|O b|",
                                          "1:8: 'b|' has no tag; expected word|TAG"},
                                         {"|O", "1:1: '|O' has no word; expected word|TAG"},
                                         {"|", "1:1: '|' has no word; expected word|TAG"},
                                         {"Zo\xc3\xab", "1:1: 'Zo?\?' has no tag; expected word|TAG"}});
}

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
}  // namespace windrow::testing
