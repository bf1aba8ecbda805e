// Word vectors in text: what is read, what is refused, and what random damage does.
#include <sys/stat.h>
#include <zlib.h>

#include "tests/models/training.h"
#include "windrow/models/saved_model.h"

namespace windrow::testing {
namespace {

using namespace std::string_literals;

/// Rows for "cat", "dog" and ". . .", 0.5 before anything is read.
struct Table {
  std::vector<float> numbers = std::vector<float>(6, 0.5f);
  WordVectors found;

  explicit Table(const std::string& text) {
    static const std::map<std::string_view, std::int64_t> rows = {{"cat", 0}, {"dog", 1}, {". . .", 2}};
    std::istringstream in(text);
    found = read_word_vectors(in, "v.txt", {.width = 2, .numbers = numbers, .row_of = [](std::string_view word) {
                                              const auto row = rows.find(word);
                                              return row == rows.end() ? std::int64_t{-1} : row->second;
                                            }});
  }
};

TEST(WordVectors, AreReadInTheFormatsOfGloveAndWord2vec) {
  const std::string lines = "the 1 2\ncat 0.25 -1.5e-1\n. . . 3 -.5\ncat 9 9\n";
  for (const std::string& text : {lines, "4 2\n" + lines, "\xef\xbb\xbf" + lines, lines.substr(0, lines.size() - 1)}) {
    const Table table(text);
    EXPECT_EQ(table.numbers, (std::vector<float>{0.25f, -0.15f, 0.5f, 0.5f, 3, -0.5f})) << text;
    EXPECT_EQ(table.found.words, 4);
    EXPECT_EQ(table.found.rows, 2);
  }
  EXPECT_EQ(Table("cat 1 2 \r\n1 3 4\r\n\r\n").numbers[1], 2) << "spaces and ends of other systems; a number is a word";
  EXPECT_EQ(Table("cat\t1\t2\nroute 66 3 4\n").found.words, 2) << "tabs; a word that ends in a number";
  EXPECT_EQ(Table("cat 1e-60 123456789.123456789\n").numbers[1], 123456789.123456789f);
}

TEST(WordVectors, ThatAreDamagedAreRefusedByLine) {
  const std::string none = "no vector; expected a word and its numbers on each line";
  const std::string width = "; expected 2, the width of the table";
  for (const auto& [text, error] :
       std::vector<BadText>{{"", "1:1: " + none},
                            {"2 2\n", "1:1: " + none},
                            {"cat 1\n", "1:1: 1 numbers" + width},
                            {"cat 1 2 3\na 1 2\n", "1:1: 3 numbers" + width},
                            {"400 3\ncat 1 2 3\n", "1:5: 3 numbers per word" + width},
                            {"cat 1 2x\n", "1:7: '2x'; expected a decimal number"},
                            {"rat nan 2\n", "1:5: 'nan'; expected a decimal number"},
                            {"cat 1 1e99\n", "1:7: '1e99'; expected a number within the range of float"},
                            {"cat 1 1e999\n", "1:7: '1e999'; expected a number within the range of float"},
                            {"\nb 1 2\n", "1:1: no word; expected a word and its numbers"},
                            {"2 2\ncat \0\x80? \0\x81?\n"s,
                             "2:5: a NUL byte in a number, as in binary vectors; expected vectors in text"}}) {
    EXPECT_EQ(refusal([&, &of = text] { Table read(of); }), "v.txt:" + error) << text;
  }
}

TEST(WordVectors, MayHaveABlankATabOrANulByteAsTheirWord) {
  const std::string odd = " 1 2\n  3 4\n\t\t5 6\n\0 7 8\n\t9 9\n"s;
  const Table table("cat 0.25 1\n" + odd + "dog 5 6\n");
  EXPECT_EQ(table.found.words, 7);
  EXPECT_EQ(table.found.left_out, 0);
  EXPECT_EQ(table.numbers, (std::vector<float>{0.25f, 1, 5, 6, 0.5f, 0.5f}));
  EXPECT_EQ(Table(odd).found.words, 5) << "also as the first one";
}

TEST(WordVectors, OfAFileThatWasShortenedAreReadAndTheWrongCountIsTold) {
  const Table table("2519370 2\ncat 1 2\ndog 3 4\n");
  EXPECT_EQ(table.found.announced, 2519370);
  EXPECT_EQ(table.found.words, 2);
  EXPECT_EQ(table.numbers, (std::vector<float>{1, 2, 3, 4, 0.5f, 0.5f}));
  EXPECT_EQ(Table("cat 1 2\n").found.announced, std::nullopt);
}

TEST(WordVectors, LeaveLinesOutThatAreNoneAndCountThem) {
  const Table table("a 1 2\ncat 1\n\nrat nan 2\ncat 1 2x\ncat 1 1e99\ndog 3 4\ncat 5 6\nrat 7");
  EXPECT_EQ(table.found.words, 3);
  EXPECT_EQ(table.found.left_out, 6);
  EXPECT_EQ(table.found.first_left_out, "v.txt:2:1: 1 numbers; expected 2, the width of the table");
  EXPECT_EQ(table.numbers, (std::vector<float>{5, 6, 3, 4, 0.5f, 0.5f})) << "no row is half set";
}

/// Compressed, and through a pipe.
TEST(WordVectors, AreReadFromCompressedFilesAndPipes) {
  const TestFolder folder;
  const std::string file = folder.file("v.gz"), pipe = folder.file("p");
  std::vector<float> numbers(2);
  const WordVectorTable table = {
      .width = 2, .numbers = numbers, .row_of = [](std::string_view) { return std::int64_t{0}; }};
  gzFile to = gzopen(file.c_str(), "wb");
  gzputs(to, "cat 1 2\n");
  gzclose(to);
  EXPECT_EQ(read_word_vectors(file, table).rows, 1);
  EXPECT_EQ(numbers, (std::vector<float>{1, 2}));
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::jthread writer([&] { std::ofstream(pipe) << "cat 3 4\n"; });
  EXPECT_EQ(read_word_vectors(pipe, table).rows, 1);
  EXPECT_EQ(numbers, (std::vector<float>{3, 4}));
}

/// Damage gives a refusal in one line, or finite numbers.
TEST(WordVectors, ThatAreDamagedAtRandomDoNoHarm) {
  const unsigned seed = first_seed();
  std::mt19937 random(seed);
  const std::string good = "3 2\nthe 1 2\ncat 0.25 -1.5e-1\n. . . 3 4\n";
  const std::string bytes("09.-+eE \n\r\t\0x\xff", 14);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string text = good;
    for (unsigned changes = 1 + random() % 3; changes > 0; --changes) {
      const std::size_t at = random() % text.size();
      const char byte = bytes[random() % bytes.size()];
      switch (random() % 3) {
        case 0:
          text[at] = byte;
          break;
        case 1:
          text.insert(at, 1, byte);
          break;
        default:
          text.erase(at, 1 + random() % 4);
      }
      if (text.empty()) text = " ";
    }
    try {
      for (const float number : Table(text).numbers) ASSERT_TRUE(std::isfinite(number)) << text << " seed " << seed;
    } catch (const DataError& error) {
      ++refused;
      ASSERT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      ASSERT_TRUE(std::string(error.what()).starts_with("v.txt:")) << error.what();
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(WordVectors, BecomeTheRowsOfAModelsEmbedding) {
  const TestFolder folder;
  const std::string file = folder.file("vectors.txt");
  for (const WorkloadKind& kind : workload_kinds()) {
    WorkloadOptions options{.samples = 16, .sizes = {{"hidden", 4}}};
    for (const WorkloadSize& size : kind.sizes) {
      if (size.name == "embedding") options.sizes["embedding"] = 3;
      if (size.name == "vocabulary") options.sizes["vocabulary"] = 40;
      if (size.name == "leaves") options.sizes["leaves"] = 4;
    }
    HostWorkload made(kind.name, options, {.workers = 1});
    Workload& workload = made.workload;
    EXPECT_EQ(workload.embedding.has_value(), kind.embeds_words) << kind.name;
    if (!workload.embedding) continue;
    const WordEmbedding& embedding = *workload.embedding;
    const Tensor value = workload.parameters->value(embedding.table);
    ASSERT_EQ(embedding.words.size(), static_cast<std::size_t>(value.rows())) << kind.name;
    EXPECT_EQ(embedding.words[Vocabulary::unknown], "");
    std::size_t row = 0;
    while (embedding.words[row].empty()) ++row;
    std::ofstream(file) << "no-such-word 9 9 9\n" << embedding.words[row] << " 1 2 3\n";
    std::vector<float> expected = value.get();
    for (std::size_t i = 0; i < 3; ++i) expected[3 * row + i] = static_cast<float>(i + 1);
    const WordVectors found = set_word_vectors(workload, file);
    EXPECT_EQ(found.rows, 1);
    EXPECT_EQ(value.get(), expected) << kind.name;

    expected[3 * row] = 1e-40f;  // all bits are kept
    value.set(expected);
    const std::int64_t saved = save_word_vectors(workload, file);
    EXPECT_EQ(saved, found.of) << kind.name;
    std::vector<float> changed = expected;
    for (std::size_t r = 0; r < embedding.words.size(); ++r) {
      if (!embedding.words[r].empty()) changed[3 * r] = 7;
    }
    value.set(changed);
    EXPECT_EQ(set_word_vectors(workload, file).rows, saved);
    EXPECT_EQ(value.get(), expected) << kind.name;
  }
}

}  // namespace
}  // namespace windrow::testing
