// Files of data as they are published: which ones are read, under which names, compressed or not, and what is left out.
// The published data themselves, where WINDROW_DATA names the folder that holds them: their known counts. Data are
// under terms of their own, so none are here.
#include <zlib.h>

#include "tests/models/training.h"
#include "windrow/models/saved_model.h"

namespace windrow::testing {
namespace {

std::string gzipped(const std::string& text) {
  const TestFolder folder;
  const std::string file = folder.file("gzipped");
  gzFile to = gzopen(file.c_str(), "wb");
  gzwrite(to, text.data(), static_cast<unsigned>(text.size()));
  gzclose(to);
  return read_file(file);
}

/// The options of a small model.
WorkloadOptions small_options(const WorkloadKind& kind, const std::filesystem::path& folder) {
  WorkloadOptions options = {.data = folder.string()};
  for (const WorkloadSize& size : kind.sizes) {
    const bool fixed = size.name == "classes";
    if (!fixed) options.sizes[size.name] = std::min<Index>(size.preset, size.name == "vocabulary" ? 100 : 4);
  }
  return options;
}

HostWorkload small_workload(const std::string& name, const std::filesystem::path& folder,
                            const std::string& training = {}, const std::string& validation = {}) {
  WorkloadOptions options = small_options(workload_kind(name), folder);
  options.training_file = training;
  options.validation_file = validation;
  return HostWorkload(name, options);
}

using Sizes = std::pair<std::size_t, std::size_t>;
Sizes sizes_of_sets(const std::string& name, const std::filesystem::path& folder, const std::string& training = {},
                    const std::string& validation = {}) {
  const HostWorkload made = small_workload(name, folder, training, validation);
  return {made.workload.training.size(), made.workload.validation.size()};
}

std::string generated_text(const std::string& kind, std::size_t samples) {
  std::string text;
  for (std::size_t i = 0; i < samples; ++i) {
    if (kind == "tree-lstm") text += "(3 (2 It) (4 works))\n";
    if (kind == "var-lstm" || kind == "fixed-lstm") text += "a b c d\n";
    if (kind.starts_with("bilstm")) text += "a|NN|O b|NNP|I-PER\n";
    if (kind == "listops") text += "4\t[MAX 2 4 ]\n";
    if (kind == "dag" || kind == "parser") {
      text += "1\ta\t_\tX\t_\t_\t0\troot\t0:root\t_\n2\tb\t_\tX\t_\t_\t1\tdep\t1:dep\t_\n\n";
    }
  }
  return text;
}

/// Names under which sets are found.
struct Published {
  const char *kind, *training, *validation;
};

/// Each of the kinds' own names, and those of publications; other files of the folder are not read.
TEST(DataFiles, AreFoundUnderTheirPublishedNamesAndNoOthersAreRead) {
  for (const auto& [kind, training, validation] : {Published{"tree-lstm", "train.txt", "dev.txt"},
                                                   {"var-lstm", "train.txt", "valid.txt"},
                                                   {"var-lstm", "ptb.train.txt", "ptb.valid.txt"},
                                                   {"fixed-lstm", "wiki.train.tokens", "wiki.valid.tokens"},
                                                   {"listops", "train_d20s.tsv", "test_d20s.tsv"},
                                                   {"listops", "basic_train.tsv", "basic_val.tsv"},
                                                   {"dag", "train.conllu", "dev.conllu"},
                                                   {"parser", "en_ewt-ud-train.conllu", "en_ewt-ud-dev.conllu"}}) {
    for (const std::string ending : {"", ".gz"}) {
      const auto text = [&](std::size_t samples) {
        return ending.empty() ? generated_text(kind, samples) : gzipped(generated_text(kind, samples));
      };
      const TextFolder folder({{training + ending, text(3)}, {validation + ending, text(2)}, {"test.txt", "("}});
      const HostWorkload made = small_workload(kind, folder.path);
      const Workload& workload = made.workload;
      EXPECT_EQ(workload.training.size(), 3u) << kind << training;  // also of pieces of four words
      EXPECT_EQ(workload.training_source.files, std::vector{folder.path / (training + ending)});
      EXPECT_EQ(workload.validation_source.files, std::vector{folder.path / (validation + ending)});
    }
  }
  std::string sentences = generated_text("bilstm", 25);
  for (const std::string name : {"all.txt", "aij-wikiner-en-wp3", "aij-wikiner-de-wp2"}) {
    const TextFolder folder(std::map<std::string, std::string>{{name, sentences}});
    EXPECT_EQ(sizes_of_sets("bilstm", folder.path), Sizes(23, 2)) << "each tenth";
  }
}

TEST(DataFiles, ThatAreMissingAreNotReplacedByOthers) {
  const std::string one = generated_text("var-lstm", 1), two = generated_text("var-lstm", 2);
  const TextFolder folder({{"valid.txt", one}, {"test.txt", two}});
  EXPECT_EQ(refusal([&] { sizes_of_sets("var-lstm", folder.path); }),
            folder.path.string() +
                ": no train.txt, ptb.train.txt or wiki.train.tokens; expected the training set under "
                "such a name, or another file by --train");
  EXPECT_EQ(sizes_of_sets("var-lstm", folder.path, "valid.txt", "test.txt"), Sizes(1, 2));
  EXPECT_EQ(sizes_of_sets("var-lstm", folder.path, "test.txt"), Sizes(2, 1)) << "the validation set by its name";
  EXPECT_EQ(sizes_of_sets("var-lstm", folder.path, "test.txt", (folder.path / "valid.txt").string()), Sizes(2, 1));
  EXPECT_EQ(refusal([&] { sizes_of_sets("var-lstm", folder.path, "valid.txt"); }),
            (folder.path / "valid.txt").string() +
                ": the training set and the validation set; expected two files, by --train and --valid");
  EXPECT_EQ(refusal([&] { sizes_of_sets("var-lstm", folder.path, "none.txt", "test.txt"); }),
            (folder.path / "none.txt").string() + ": no such file; expected a file of sentences, one per line");
  std::filesystem::remove(folder.path / "valid.txt");
  EXPECT_EQ(refusal([&] { sizes_of_sets("var-lstm", folder.path, "test.txt"); }),
            folder.path.string() +
                ": no valid.txt, ptb.valid.txt or wiki.valid.tokens; expected the validation set under "
                "such a name, or another file by --valid");
}

TEST(DataFiles, OfWhichSeveralWouldDoAreChosenByTheUser) {
  const std::string text = generated_text("parser", 1);
  const TextFolder folder(
      {{"en_ewt-ud-train.conllu", text}, {"de_gsd-ud-train.conllu", text + text}, {"dev.conllu", text}});
  EXPECT_EQ(refusal([&] { sizes_of_sets("parser", folder.path); }),
            folder.path.string() +
                ": de_gsd-ud-train.conllu and en_ewt-ud-train.conllu; expected one training set, or "
                "the name of one by --train");
  EXPECT_EQ(sizes_of_sets("parser", folder.path, "de_gsd-ud-train.conllu"), Sizes(2, 1));
}

/// Of a kind with one file, every tenth sample validates, unless another file does.
TEST(DataFiles, OfOneSetMayBeValidatedByAnother) {
  const TextFolder folder({{"all.txt", generated_text("bilstm", 20)}, {"other.txt", generated_text("bilstm", 7)}});
  EXPECT_EQ(sizes_of_sets("bilstm", folder.path), Sizes(18, 2));
  EXPECT_EQ(sizes_of_sets("bilstm", folder.path, "", "other.txt"), Sizes(20, 7));
  EXPECT_EQ(sizes_of_sets("bilstm", folder.path, "other.txt"), Sizes(7, 0));
}

TEST(DataFiles, OfParallelTextAreChosenByTheirNameWithoutTheLanguage) {
  const TextFolder folder({{"train.de.gz", gzipped("ja\nnein\n")},
                           {"train.en", "yes\nno\n"},
                           {"val.de", "ja\n"},
                           {"val.en.gz", gzipped("yes\n")},
                           {"tst2012.de", "ja\nja\nja\n"},
                           {"tst2012.en", "yes\nyes\nyes\n"}});
  EXPECT_EQ(sizes_of_sets("seq2seq", folder.path), Sizes(2, 1));
  EXPECT_EQ(sizes_of_sets("seq2seq", folder.path, "", "tst2012"), Sizes(2, 3));
  EXPECT_NE(refusal([&] {
              sizes_of_sets("seq2seq", folder.path, "val");
            }).find("the training set and the validation set are val.LANGUAGE; expected two sets"),
            std::string::npos);
}

TEST(DataFiles, OfImagesHaveThePublishedNamesAndThoseThatUnpackersGive) {
  std::ostringstream images, labels;
  write_idx(generate_digits(6, 1), images, labels);
  for (const auto& [before, ending] : {std::pair("-", ""), {".", ""}, {"-", ".gz"}}) {
    const auto content = [&](const std::ostringstream& of) { return *ending == '\0' ? of.str() : gzipped(of.str()); };
    std::map<std::string, std::string> texts;
    for (const std::string part : {"train", "t10k"}) {
      texts[part + "-images" + before + "idx3-ubyte" + ending] = content(images);
      texts[part + "-labels" + before + "idx1-ubyte" + ending] = content(labels);
    }
    const TextFolder folder(texts);
    EXPECT_EQ(sizes_of_sets("mlp", folder.path), Sizes(6, 6)) << before << ending;
    const std::filesystem::path of_training = folder.path / ("train-labels" + std::string(before) + "idx1-ubyte");
    std::filesystem::remove(of_training.string() + ending);
    EXPECT_EQ(refusal([&] { sizes_of_sets("cnn", folder.path); }),
              of_training.string() + ": no such file; expected a file of labels in IDX format");
  }
  const std::string cut = gzipped(images.str()).substr(0, 500);
  const TextFolder damaged({{"i.gz", cut}, {"i", gzipped(images.str())}, {"l", labels.str()}});
  EXPECT_EQ(refusal([&] { read_idx(damaged.path / "i.gz", damaged.path / "l"); }),
            (damaged.path / "i.gz").string() + ": is cut off or damaged; expected a whole file of gzip");
  EXPECT_EQ(refusal([&] { read_idx(damaged.path / "i", damaged.path / "l"); }),
            (damaged.path / "i").string() + ": looks like a gzip file; expected images, or a name that ends in .gz");
}

TEST(DataFiles, ThatAreNoTextAreRefusedAsWhatTheyLookLike) {
  const std::string utf16("a\0 \0b\0\n\0", 8), zeros = "a b\na " + std::string(3, '\0') + " b\n";
  const std::string text = generated_text("var-lstm", 4);
  const auto why = [&](const std::string& content, const std::string& kind, const std::string& name) {
    const TextFolder folder({{name, content}, {"valid.txt", text}});
    const std::string whole = refusal([&] { sizes_of_sets(kind, folder.path); });
    const std::string file = (folder.path / name).string();
    EXPECT_TRUE(whole.starts_with(file)) << whole;
    return whole.substr(std::min(file.size(), whole.size()));
  };
  for (const auto& [kind, name] : {std::pair("var-lstm", "train.txt"), {"bilstm-char", "all.txt"}}) {
    EXPECT_EQ(why(gzipped(text), kind, name),
              ":1:1: looks like a gzip file; expected text in UTF-8; gunzip unpacks it");
    EXPECT_EQ(why("\xff\xfe" + utf16, kind, name),
              ":1:1: looks like text in UTF-16; expected text in UTF-8; iconv -f UTF-16 -t UTF-8 converts it");
    EXPECT_EQ(why(utf16, kind, name), ":1:2: a NUL byte, as in binary files and UTF-16; expected text in UTF-8");
    EXPECT_EQ(why(zeros, kind, name), ":2:3: a NUL byte, as in binary files and UTF-16; expected text in UTF-8");
    EXPECT_EQ(why("BZh91AY&SY\x12\x34", kind, name),
              ":1:1: looks like a bzip2 file; expected text in UTF-8; bunzip2 unpacks it");
    EXPECT_EQ(why("version https://git-lfs.github.com/spec/v1\noid sha256:1\n", kind, name),
              ":1:1: looks like a pointer of Git LFS; expected text in UTF-8; git lfs pull gets the file itself");
    EXPECT_EQ(why("\x80\x04\x95\x10", kind, name), ":1:1: looks like a pickle of Python; expected text in UTF-8");
  }
  const TextFolder folder({{"train.txt.bz2", "BZh91AY&SY"}, {"valid.txt", text}});
  EXPECT_EQ(refusal([&] { sizes_of_sets("var-lstm", folder.path); }),
            (folder.path / "train.txt.bz2").string() +
                ":1:1: looks like a bzip2 file; expected text in UTF-8; bunzip2 unpacks it");
  const std::string cut = gzipped(generated_text("var-lstm", 20000));
  const TextFolder damaged({{"train.txt.gz", cut.substr(0, cut.size() / 2)}, {"valid.txt", text}});
  EXPECT_EQ(refusal([&] { sizes_of_sets("var-lstm", damaged.path); }),
            (damaged.path / "train.txt.gz").string() + ": is cut off or damaged; expected a whole file of gzip");
}

TEST(DataFiles, LeaveOutWhatTheyCountAndName) {
  std::map<std::string, std::string> texts = {{"train.de", "ja\n\nnein\nso\n"},
                                              {"train.en", "yes\nalso\n \nso\n"},
                                              {"valid.de", "ja\n\n\n"},
                                              {"valid.en", "yes\nno\n\n"}};
  for (int i = 0; i < 151; ++i) texts["train.de"] += "so ";
  texts["train.en"] += "so";
  const TextFolder folder(texts);
  const HostWorkload made = small_workload("seq2seq", folder.path);
  const Workload& workload = made.workload;
  EXPECT_EQ(workload.training.size(), 2u);
  const auto& left_out = workload.training_source.left_out;
  ASSERT_EQ(left_out.size(), 2u);
  EXPECT_EQ(left_out[0].samples, 2u);
  EXPECT_EQ(left_out[0].why, "blank on one side");
  EXPECT_EQ(left_out[1].samples, 1u);
  EXPECT_EQ(left_out[1].why, "longer than 150 words");
  ASSERT_EQ(workload.validation_source.left_out.size(), 1u);
  EXPECT_EQ(workload.validation_source.left_out[0].samples, 1u);
  std::ofstream(folder.path / "train.de") << texts["train.de"].substr(texts["train.de"].find("so ")) << "\n";
  std::ofstream(folder.path / "train.en") << "so\n";
  EXPECT_EQ(
      refusal([&] { small_workload("seq2seq", folder.path); }),
      folder.path.string() + ": all 1 training sentences have more than 150 words; expected at least one that has not");
}

/// A file that was written with its columns in the order of Long Range Arena.
TEST(ListOps, MayHaveTheValueBehindTheTreeAndAFirstLineOfNames) {
  std::istringstream in("Source\tTarget\n( ( ( [MAX 2 ) 9 ) ] )\t9\n[SM 5 6 ]\t1\n7\t[MIN 7 8 ]\n");
  const std::vector<ListOpsTree> trees = read_listops(in, "basic_train.tsv");
  ASSERT_EQ(trees.size(), 3u);
  EXPECT_EQ(trees[0].value, 9);
  EXPECT_EQ(trees[1].value, 1);
  EXPECT_EQ(trees[2].value, 7);
  std::istringstream wrong("[SM 5 6 ]\t2\n");
  EXPECT_EQ(refusal([&] { read_listops(wrong, "t"); }), "t:1:11: value 2; expected 1, the value of the tree");
}

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
  const HostWorkload made(expected.name, {.data = file(expected.folder).string(),
                                          .training_file = expected.file,
                                          .validation_file = expected.validation_file});
  const Workload& workload = made.workload;
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
}  // namespace windrow::testing
