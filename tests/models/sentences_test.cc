// Plain and tagged sentences, read from text.
#include "windrow/models/sentences.h"

#include <gtest/gtest.h>

#include <sstream>

#include "tests/models/refusal.h"

namespace windrow {
namespace {

std::vector<Sentence> parsed_sentences(const std::string& text) {
  std::istringstream in(text);
  return read_sentences(in, "words.txt");
}

std::vector<TaggedSentence> read_tagged(const std::string& text) {
  std::istringstream in(text);
  return read_tagged_sentences(in, "tags.txt");
}

TEST(Sentences, AreLinesOfWordsBetweenBlanks) {
  EXPECT_EQ(parsed_sentences(" no it was n't \n<unk>\tN\n"),
            (std::vector<Sentence>{{"no", "it", "was", "n't"}, {"<unk>", "N"}}));
}

TEST(Sentences, MayHaveAByteOrderMarkForeignLineEndsAndBlankLines) {
  EXPECT_EQ(parsed_sentences("\xef\xbb\xbfone\r\n\r\n \t\ntwo words\r"),
            (std::vector<Sentence>{{"one"}, {"two", "words"}}));
}

TEST(Sentences, KeepWhateverBytesAWordHas) {
  const std::string word("\xff|\x01");
  EXPECT_EQ(parsed_sentences("a " + word + "\n"), (std::vector<Sentence>{{"a", word}}));
}

TEST(Sentences, MayBeLong) {
  constexpr std::size_t words = 1000000;
  std::string text;
  for (std::size_t i = 0; i < words; ++i) text += "a ";
  EXPECT_EQ(parsed_sentences(text)[0].size(), words);
  EXPECT_EQ(parsed_sentences(std::string(words, 'a'))[0][0].size(), words);
}

TEST(Sentences, AreRefusedWhereThereAreNone) {
  const std::string error = "1:1: no sentence; expected one per line, such as no it was n't";
  expect_refused("words.txt:", parsed_sentences, {{"", error}, {"\xef\xbb\xbf\n \r\n", error}});
}

TEST(Sentences, SayWhichFileCannotBeRead) {
  expect_no_file_refused([](const auto& file) { read_sentences(file); }, "sentences, one per line");
  expect_no_file_refused([](const auto& file) { read_tagged_sentences(file); }, "tagged sentences, one per line");
}

TEST(TaggedSentences, HaveATagBehindTheLastBar) {
  const auto sentences = read_tagged("in|O Paris|I-LOC\r\n\nParis|NNP|I-LOC");
  ASSERT_EQ(sentences.size(), 2u);
  EXPECT_EQ(sentences[0].words, (Sentence{"in", "Paris"}));
  EXPECT_EQ(sentences[0].tags, (std::vector<std::string>{"O", "I-LOC"}));
  EXPECT_EQ(sentences[1].words, Sentence{"Paris"});
  EXPECT_EQ(sentences[1].tags, std::vector<std::string>{"I-LOC"});
}

TEST(TaggedSentences, MayHaveABarAsAWord) {
  const auto sentences = read_tagged("||O |a|O");
  EXPECT_EQ(sentences[0].words, (Sentence{"|", "|a"}));
  EXPECT_EQ(sentences[0].tags, (std::vector<std::string>{"O", "O"}));
  const auto divided = read_tagged("a|b|NN|O ||SYM|O c|NN|I-PER\na|b|O c|O");
  EXPECT_EQ(divided[0].words, (Sentence{"a|b", "|", "c"})) << "with parts of speech";
  EXPECT_EQ(divided[0].tags, (std::vector<std::string>{"O", "O", "I-PER"}));
  EXPECT_EQ(divided[1].words, (Sentence{"a|b", "c"})) << "without";
}

TEST(TaggedSentences, AreRefusedInOneLine) {
  expect_refused("tags.txt:", read_tagged,
                 {{" \n", "1:1: no sentence; expected one per line, such as in|O Paris|I-LOC"},
                  {"a|O\n  b|O c", "2:7: 'c' has no tag; expected word|TAG"},
                  {"\xef\xbb\xbf"
                   "a|O b|",
                   "1:8: 'b|' has no tag; expected word|TAG"},
                  {"|O", "1:1: '|O' has no word; expected word|TAG"},
                  {"|", "1:1: '|' has no word; expected word|TAG"},
                  {"Zo\xc3\xab", "1:1: 'Zo?\?' has no tag; expected word|TAG"}});
}

}  // namespace
}  // namespace windrow
