// Plain, tagged and parallel sentences, read from text; numbers for words, and the characters of words. BLEU against
// examples that were computed by hand.
#include <ranges>

#include "tests/models/training.h"
#include "windrow/models/internal/parallel_text.h"
#include "windrow/training/record.h"
#include "windrow/training/tensor_file.h"

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

std::string words(std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += "a ";
  return text;
}

TEST(Sentences, MayBeLong) {
  constexpr std::size_t many = 1000000;
  EXPECT_EQ(parsed(read_sentences, words(many))[0].size(), many);
  EXPECT_EQ(parsed(read_sentences, std::string(many, 'a'))[0][0].size(), many);
}

TEST(Sentences, AreRefusedWhereThereAreNone) {
  const std::string error = "1:1: no sentence; expected one per line, such as no it was n't";
  expect_refused(read_sentences, {{"", error}, {"\xef\xbb\xbf\n \r\n", error}});
}

TEST(Vocabularies, AreKeptInRecords) {
  const Vocabulary words(WordList{"no", "\"it\"", "n't", "caf\u00e9"});
  const Record record = Record::parse(words.record().json(), "run/300.json: words");
  const Vocabulary same = Vocabulary::of(record);
  EXPECT_EQ(same.words(), words.words());
  EXPECT_EQ(same.number("n't"), 3);
  EXPECT_EQ(same.number("yes"), Vocabulary::unknown);
  EXPECT_EQ(Vocabulary::of(Vocabulary(WordList()).record()).size(), 1);
  EXPECT_EQ(error_of<FileError>([] {
              Vocabulary::of(Record().set("words", RecordValue::List{"a", "a"}));
            }),
            "vocabulary: 'a' is word 2; expected words, each once");
  EXPECT_THROW(Vocabulary::of(Record().set("tags", RecordValue::List{})), FileError);
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

std::vector<SentencePair> parsed_parallel_text(const std::string& source, const std::string& target) {
  std::istringstream from(source), to(target);
  return read_parallel_text(NamedText{from, "a.de"}, NamedText{to, "a.en"});
}

TEST(ParallelText, PairsLinesOfOneNumber) {
  const std::vector<SentencePair> expected = {{{"wir", "sind", "hier"}, {"we", "are", "here"}},
                                              {{"sch\xc3\xb6n"}, {"\xe2\x82\xac", "\xf0\x9f\x98\x80"}}};
  EXPECT_EQ(
      parsed_parallel_text("wir sind hier\n\nsch\xc3\xb6n\n", "we  are here\n \nEUR 1"),
      (std::vector<SentencePair>{{{"wir", "sind", "hier"}, {"we", "are", "here"}}, {{"sch\xc3\xb6n"}, {"EUR", "1"}}}));
  EXPECT_EQ(parsed_parallel_text("\xef\xbb\xbfwir sind hier\r\nsch\xc3\xb6n",
                                 "we are here\n\xe2\x82\xac \xf0\x9f\x98\x80\r\n"),
            expected);
}

std::string no_utf8(const std::string& place, const std::string& byte) {
  return place + ": byte 0x" + byte + " begins no character of UTF-8; expected text in UTF-8";
}
const std::string as_many = "; expected as many, since each line translates the one of its number";

struct BadPairOfTexts {
  std::string source, target, error;
};

TEST(ParallelText, IsRefusedInOneLine) {
  const std::vector<BadPairOfTexts> texts = {
      {"a\nb\n", "a\n", "a.de: 2 lines, but a.en: 1 line" + as_many},
      {"", "a\nb\nc", "a.de: 0 lines, but a.en: 3 lines" + as_many},
      {"", "", "a.de:1:1: no sentence; expected one per line"},
      {"\n\n", " \n\r\n", "a.de:1:1: no sentence; expected one per line"},
      {"a\n\n", "\nb\n", "a.de:1:1: no sentence; expected one per line"},
      {"a\nb \xff\n", "a\nb\n", no_utf8("a.de:2:3", "ff")},
      {"a", "\xe4", no_utf8("a.en:1:1", "e4")},
      {"a \xc0\xaf", "a", no_utf8("a.de:1:3", "c0")},
      {"\xef\xbb\xbf\xe0\x80\xaf", "a", no_utf8("a.de:1:4", "e0")},
      {"\xed\xa0\x80", "a", no_utf8("a.de:1:1", "ed")},
      {"\xf4\x90\x80\x80", "a", no_utf8("a.de:1:1", "f4")},
      {"a", "b\xf0\x9f\x98", no_utf8("a.en:1:2", "f0")},
      {"a\n" + words(1001), "a\na", "a.de:2:2001: 1001 words in a line; expected at most 1000"}};
  for (const auto& [source, target, error] : texts) {
    EXPECT_EQ(refusal([&, &from = source, &to = target] { parsed_parallel_text(from, to); }), error) << source;
  }
}

TEST(ParallelText, HasLinesOfAThousandWords) {
  EXPECT_EQ(parsed_parallel_text(words(1000), "a")[0].source.size(), 1000u);
}

TEST(ParallelText, IsReadFromTwoFiles) {
  const TextFolder folder({{"pair.de", "ja\n"}, {"pair.en", "yes\nno\n"}});
  const std::filesystem::path source = folder.path / "pair.de", target = folder.path / "pair.en";
  EXPECT_EQ(refusal([&] { read_parallel_text(source, target); }),
            source.string() + ": 1 line, but " + target.string() + ": 2 lines" + as_many);
  EXPECT_EQ(read_parallel_text(source, source), (std::vector<SentencePair>{{{"ja"}, {"ja"}}}));
  EXPECT_EQ(refusal([&] { read_parallel_text(source, folder.path / "none.en"); }),
            (folder.path / "none.en").string() + ": no such file; expected a file of sentences, one per line");
}

TEST(ParallelText, IsFoundByItsLanguages) {
  const TextFolder folder({{"train.de", ""},
                           {"train.en", ""},
                           {"train", ""},
                           {"valid.de", ""},
                           {"test.de", ""},
                           {"test.en", ""},
                           {"test.fr", ""},
                           {"code", ""}});
  const std::string name = folder.path.string();
  EXPECT_EQ(find_parallel_text(folder.path, "train").source, folder.path / "train.de");
  EXPECT_EQ(find_parallel_text(folder.path, "train").target, folder.path / "train.en");
  const auto files = [&](const char* part, const LanguagePair& languages) {
    const ParallelFiles found = find_parallel_text(folder.path, part, languages);
    return found.source.filename().string() + " " + found.target.filename().string();
  };
  EXPECT_EQ(files("train", {.source = "de"}), "train.de train.en");
  EXPECT_EQ(files("train", {.source = "en"}), "train.en train.de");
  EXPECT_EQ(files("train", {.target = "de"}), "train.en train.de");
  EXPECT_EQ(files("test", {.source = "fr", .target = "de"}), "test.fr test.de");
  EXPECT_EQ(refusal([&] { files("train", {.source = "fr"}); }),
            name + ": no train.fr; expected one of train.de, train.en");
  EXPECT_EQ(refusal([&] { files("train", {.source = "de", .target = "fr"}); }),
            name + ": no train.fr; expected one of train.de, train.en");
  EXPECT_EQ(refusal([&] { files("train", {.source = "de", .target = "de"}); }),
            name + ": 'de' as source and target; expected two languages");
  EXPECT_EQ(refusal([&] { files("test", {.source = "de"}); }),
            name + ": 3 files test.LANGUAGE; expected two, or the names of the source and the target language");
  EXPECT_EQ(refusal([&] { find_parallel_text(folder.path, "valid"); }),
            name + ": 1 file valid.LANGUAGE; expected two, such as valid.de and valid.en");
  EXPECT_EQ(refusal([&] { find_parallel_text("/nowhere", "test"); }),
            "/nowhere: 0 files test.LANGUAGE; expected two, such as test.de and test.en");
}

TEST(ParallelText, IsFoundByPathsWithoutTheLanguage) {
  const TextFolder folder({{"train.de", ""}, {"train.en.gz", ""}, {"train", ""}, {"other", ""}});
  const std::filesystem::path elsewhere = std::filesystem::temp_directory_path();
  const std::string absolute = (folder.path / "train").string(),
                    relative = std::filesystem::relative(folder.path / "train").string();
  EXPECT_EQ(find_parallel_text(elsewhere, absolute).source, folder.path / "train.de");
  EXPECT_EQ(find_parallel_text(elsewhere, absolute, {.source = "en"}).source, folder.path / "train.en.gz");
  const ParallelFiles found = find_parallel_text("/nowhere", relative);
  EXPECT_TRUE(std::filesystem::equivalent(found.source, folder.path / "train.de")) << found.source;
  EXPECT_TRUE(std::filesystem::equivalent(found.target, folder.path / "train.en.gz")) << found.target;
  const std::string within = (folder.path.filename() / "train").string();
  EXPECT_EQ(find_parallel_text(folder.path.parent_path(), within).source, folder.path / "train.de");
  EXPECT_EQ(refusal([&] { find_parallel_text(elsewhere, (folder.path / "other").string()); }),
            folder.path.string() + ": 0 files other.LANGUAGE; expected two, such as other.de and other.en");
}

TEST(SentenceVocabulary, NumbersWordsBehindTheMarks) {
  const auto pairs = parsed_parallel_text("a b a\n", "x y\n");
  const SentenceVocabulary source(source_vocabulary(pairs)), frequent(source_vocabulary(pairs, 2));
  EXPECT_EQ(source.numbers({"b", "a", "x"}), (std::vector<std::int32_t>{4, 3, 0}));
  EXPECT_EQ(source.size(), 5);
  EXPECT_EQ(frequent.numbers({"b", "a"}), (std::vector<std::int32_t>{0, 3}));
  EXPECT_EQ(SentenceVocabulary(target_vocabulary(pairs)).numbers({"x", "y"}), (std::vector<std::int32_t>{3, 4}));
  EXPECT_EQ(source.words(std::vector<std::int32_t>{1, 4, 0, 3, 2, 3}), (Sentence{"b", "<unk>", "a"}));
  EXPECT_EQ(source.words(std::vector<std::int32_t>{3, 4}), (Sentence{"a", "b"}));
}

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
}  // namespace windrow::testing
