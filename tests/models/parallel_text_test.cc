// Parallel text: read, numbered, and generated.
#include "windrow/models/parallel_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "tests/models/refusal.h"
#include "tests/models/training.h"

namespace windrow {
namespace {

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

std::string words(std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += "a ";
  return text;
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
  const std::filesystem::path folder = ::testing::TempDir(), source = folder / "pair.de", target = folder / "pair.en";
  std::ofstream(source) << "ja\n";
  std::ofstream(target) << "yes\nno\n";
  EXPECT_EQ(refusal([&] { read_parallel_text(source, target); }),
            source.string() + ": 1 line, but " + target.string() + ": 2 lines" + as_many);
  EXPECT_EQ(read_parallel_text(source, source), (std::vector<SentencePair>{{{"ja"}, {"ja"}}}));
  EXPECT_EQ(refusal([&] { read_parallel_text(source, folder / "none.en"); }),
            (folder / "none.en").string() + ": no such file; expected a file of sentences, one per line");
}

TEST(ParallelText, IsFoundByItsLanguages) {
  const testing::TextFolder folder({{"train.de", ""},
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
  const testing::TextFolder folder({{"train.de", ""}, {"train.en.gz", ""}, {"train", ""}, {"other", ""}});
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

std::vector<SentencePair> generated_pairs(std::size_t sentences, std::uint64_t seed) {
  const ParallelText text = generate_parallel_text(sentences, seed);
  return parsed_parallel_text(text.source, text.target);
}

/// Translates by the rules that the header states, and learns the lexicon on the way.
class Translator {
 public:
  void check(const SentencePair& pair) {
    source_ = pair.source.begin(), target_ = pair.target.begin();
    do {
      clause();
    } while (translate(*source_++, *target_++) != ".");
    EXPECT_EQ(source_, pair.source.end());
    EXPECT_EQ(target_, pair.target.end());
  }
  std::size_t lexicon() const { return lexicon_.size(); }

 private:
  void clause() {
    const bool plural = noun_phrase();
    const bool negated = *source_ == "no";
    source_ += negated;
    const std::string verb = *source_++;
    ASSERT_TRUE(verb.ends_with("r")) << verb;
    if (*source_ == "la" || *source_ == "na") noun_phrase();
    if (*source_ != "." && !conjunction()) {
      translate(*source_++, *target_++);
      noun_phrase();
    }
    translate(verb, without(*target_++, plural ? "ten" : "te"));
    if (!negated) return;
    EXPECT_EQ(*target_++, "nix");
  }
  bool conjunction() const { return std::set<std::string>{"e", "ma", "so"}.contains(*source_); }

  /// Whether it is plural.
  bool noun_phrase() {
    const bool definite = *source_++ == "la";
    std::vector<std::string> adjectives;
    while (source_->ends_with("k")) adjectives.push_back(*source_++);
    const bool plural = source_->ends_with("ts");
    const std::string noun = without(*source_++, plural ? "ts" : "t"), article = *target_++;
    const bool feminine = genders_.emplace(noun, article[0] == 'a').first->second;
    const std::string end = std::string(feminine ? "a" : "o") + (plural ? "s" : "");
    EXPECT_EQ(article, std::string(feminine   ? "a"
                                   : definite ? "i"
                                              : "u") +
                           (definite ? "l" : "n") + (plural ? "s" : ""));
    translate(noun + "t", without(*target_++, "l" + end));
    for (const std::string& adjective : adjectives) translate(adjective, without(*target_++, "n" + end));
    return plural;
  }
  static std::string without(const std::string& word, const std::string& end) {
    EXPECT_TRUE(word.ends_with(end)) << word << " without " << end;
    return word.substr(0, word.size() - std::min(word.size(), end.size()));
  }
  const std::string& translate(const std::string& word, const std::string& to) {
    EXPECT_EQ(lexicon_.emplace(word, to).first->second, to) << word;
    return word;
  }

  std::map<std::string, std::string> lexicon_;
  std::map<std::string, bool> genders_;
  Sentence::const_iterator source_, target_;
};

TEST(GeneratedParallelText, TranslatesByTheRulesThatTheHeaderStates) {
  Translator translator;
  std::size_t longest = 0, words = 0;
  for (std::uint64_t seed : {1, 2}) {
    for (const SentencePair& pair : generated_pairs(2000, seed)) {
      translator.check(pair);
      longest = std::max(longest, pair.source.size());
      words += pair.source.size();
      EXPECT_EQ(pair.source.size(), pair.target.size());
    }
    if (HasFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_EQ(translator.lexicon(), 300u + 100 + 100 + 4 + 3 + 1) << "nouns, verbs, adjectives, and function words";
  EXPECT_LE(longest, 48u);
  EXPECT_NEAR(static_cast<double>(words) / 4000, 15, 1);
}

TEST(GeneratedParallelText, HasFewWordsInOneTextThatAreNotInAnother) {
  const SentenceVocabulary source(source_vocabulary(generated_pairs(4096, 2))),
      target(target_vocabulary(generated_pairs(4096, 2)));
  double unknown = 0, all = 0;
  for (const SentencePair& pair : generated_pairs(512, 3)) {
    for (const std::int32_t number : source.numbers(pair.source)) unknown += number == 0, ++all;
    for (const std::int32_t number : target.numbers(pair.target)) unknown += number == 0, ++all;
  }
  EXPECT_LT(unknown / all, 0.005);
}

TEST(GeneratedParallelText, IsTheSameForTheSameSeed) {
  EXPECT_EQ(generated_pairs(20, 7), generated_pairs(20, 7));
  EXPECT_NE(generated_pairs(20, 7), generated_pairs(20, 8));
  const ParallelText text = generate_parallel_text(2, 1);
  EXPECT_EQ(text.source, "la dat jar la sut .\nla lets dor la bok bek mubat .\n");
  EXPECT_EQ(text.target, "al rubila al babila zute .\nals kobilas al jabela gebana gobana febaten .\n");
}

}  // namespace
}  // namespace windrow
