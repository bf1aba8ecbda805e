#include "windrow/training/checkpoint_folder.h"

#include <sys/wait.h>
#include <unistd.h>

#include "tests/training/files.h"

namespace windrow::testing {
namespace {

namespace fs = std::filesystem;
using FileNames = std::set<std::string>;
using Steps = std::vector<std::uint64_t>;

class CheckpointFolderTest : public FileTest {
 protected:
  const FaultyCalls calls;
  const fs::path run = folder / "run";
  const CheckpointFolder checkpoints{run, calls};

  void write(const Steps& steps, CheckpointWriterOptions options = {.keep = CheckpointWriterOptions::all}) {
    options.resume = true;
    CheckpointWriter writer(run, options, calls);
    for (const std::uint64_t step : steps) writer.write(KnownCheckpoint{step}.contents());
  }
  void change(const std::string& name, std::size_t byte) {
    std::string content = read_file(run / name);
    content.at(byte) ^= 1;
    put(run / name, content);
  }
  /// A manifest in which a text is replaced, with a checksum that fits.
  void replace_in_manifest(const std::string& name, const std::string& from, const std::string& to) {
    std::string content = read_file(run / name);
    ASSERT_NE(content.find(from), content.npos) << content;
    content.replace(content.find(from), from.size(), to);
    put(run / name, content);
    const std::string error = error_of([&] { checkpoints.load(1); });
    const std::size_t found = error.find("has checksum "), stated = content.find("\"checksum\": ");
    if (found != error.npos) put(run / name, content.replace(stated + 13, 8, error.substr(found + 13, 8)));
  }
  std::string reason(std::uint64_t step) const {
    const std::string error = error_of([&] { checkpoints.load(step); });
    EXPECT_TRUE(error.starts_with(run.string() + "/")) << error;
    return error.substr(run.string().size() + 1);
  }
};

TEST_F(CheckpointFolderTest, GivesBackTheNewestCheckpoint) {
  write({1, 2, 30});
  const NewestCheckpoint newest = CheckpointFolder(run).newest();
  ASSERT_TRUE(newest.checkpoint);
  EXPECT_EQ(*newest.checkpoint, KnownCheckpoint{30});
  EXPECT_TRUE(newest.skipped.empty());
  EXPECT_EQ(checkpoints.steps(), (Steps{1, 2, 30}));
  EXPECT_EQ(checkpoints.load(2), KnownCheckpoint{2});
  EXPECT_EQ(names_in(run),
            (FileNames{"000000000001.json", "000000000001.safetensors", "000000000002.json", "000000000002.safetensors",
                       "000000000030.json", "000000000030.safetensors", "lock"}));
}

TEST_F(CheckpointFolderTest, TakesStepsOfAnySize) {
  write({~std::uint64_t{0}, 0, 1'000'000'000'000, 999'999'999'999});
  EXPECT_EQ(checkpoints.steps(), (Steps{0, 999'999'999'999, 1'000'000'000'000, ~std::uint64_t{0}}));
  EXPECT_EQ(*checkpoints.newest().checkpoint, KnownCheckpoint{~std::uint64_t{0}});
}

TEST_F(CheckpointFolderTest, MayBeEmptyButNotAbsent) {
  EXPECT_EQ(error_of([&] { checkpoints.newest(); }), run.string() + ": readdir failed: No such file or directory");
  const CheckpointWriter writer(run, {}, calls);
  EXPECT_FALSE(checkpoints.newest().checkpoint);
  EXPECT_EQ(error_of([&] { checkpoints.load(1); }),
            (run / "000000000001.json").string() + ": open failed: No such file or directory");
}

TEST_F(CheckpointFolderTest, IsMadeWithItsParents) {
  const fs::path deep = folder / "a/b/c";
  CheckpointWriter(deep, {}, calls).write(KnownCheckpoint{1}.contents());
  EXPECT_EQ(CheckpointFolder(deep).steps(), Steps{1});
  put(folder / "file", "x");
  EXPECT_EQ(error_of([&] { CheckpointWriter(folder / "file/a/b", {}, calls); }),
            (folder / "file/a/b").string() + ": mkdir failed: Not a directory");
}

TEST_F(CheckpointFolderTest, OfAnEarlierRunIsRefusedUnlessItIsResumed) {
  write({300, 4000});
  const std::string refusal = run.string() +
                              ": has checkpoints of an earlier run, up to step 4000; expected another folder, or to "
                              "resume that run";
  EXPECT_EQ(error_of([&] { CheckpointWriter(run, {}, calls); }), refusal);
  EXPECT_EQ(checkpoints.steps(), (Steps{300, 4000}));
  CheckpointWriter writer(run, {.resume = true}, calls);
  writer.write(KnownCheckpoint{5000}.contents());
  EXPECT_EQ(checkpoints.steps(), (Steps{300, 4000, 5000}));
}

TEST_F(CheckpointFolderTest, WhereNoFileCanBeMadeIsRefusedBeforeTheFirstWrite) {
  class ReadOnlyCalls : public FaultyCalls {
   public:
    int access(const char*, int) const override {
      errno = EACCES;
      return -1;
    }
  };
  write({});
  EXPECT_EQ(error_of([&] { CheckpointWriter(run, {}, ReadOnlyCalls()); }),
            run.string() + ": access failed: Permission denied");
}

TEST_F(CheckpointFolderTest, KeepsAsManyAsAsked) {
  CheckpointWriter writer(run, {.keep = 2}, calls);
  for (std::uint64_t step = 1; step <= 5; ++step) {
    writer.write(KnownCheckpoint{step}.contents());
    EXPECT_EQ(checkpoints.steps(), step == 1 ? Steps{1} : (Steps{step - 1, step}));
    EXPECT_EQ(names_in(run).size(), 2 * checkpoints.steps().size() + 1);
  }
  EXPECT_THROW(CheckpointWriter(folder / "other", {.keep = 0}, calls), MisuseError);
}

TEST_F(CheckpointFolderTest, DeletesNoneUnlessEnoughNewerOnesAreGoodNorTheOneJustWritten) {
  write({1, 2, 3, 4});
  change("000000000003.safetensors", 300);
  change("000000000004.json", 30);
  write({5}, {.keep = 2});
  EXPECT_EQ(checkpoints.steps(), (Steps{2, 3, 4, 5}));
  write({6}, {.keep = 2});
  EXPECT_EQ(checkpoints.steps(), (Steps{5, 6}));
  EXPECT_EQ(names_in(run).size(), 5u);
  write({3}, {.keep = 2});
  EXPECT_EQ(checkpoints.steps(), (Steps{3, 5, 6}));
}

TEST_F(CheckpointFolderTest, ReplacesACheckpointOfTheSameStep) {
  write({1, 2});
  CheckpointWriter writer(run, {.resume = true}, calls);
  for (const std::uint64_t version : {1, 2, 3}) {
    const KnownCheckpoint again{.step = 2, .version = version};
    writer.write(again.contents());
    EXPECT_EQ(*checkpoints.newest().checkpoint, again);
    EXPECT_EQ(names_in(run).size(), 5u);
  }
}

TEST_F(CheckpointFolderTest, SkipsDamagedCheckpointsAndSaysWhy) {
  write({1, 2, 3, 4, 5});
  fs::resize_file(run / "000000000005.json", 100);
  fs::remove(run / "000000000004.safetensors");
  change("000000000003.safetensors", read_file(run / "000000000003.safetensors").size() - 1);
  const NewestCheckpoint newest = checkpoints.newest();
  ASSERT_TRUE(newest.checkpoint);
  EXPECT_EQ(*newest.checkpoint, KnownCheckpoint{2});
  ASSERT_EQ(newest.skipped.size(), 3u);
  EXPECT_EQ(newest.skipped[0],
            (run / "000000000005.json").string() + ": manifest is not valid at byte 101; expected JSON");
  EXPECT_EQ(newest.skipped[1],
            (run / "000000000004.safetensors").string() + ": open failed: No such file or directory");
  EXPECT_TRUE(
      newest.skipped[2].starts_with((run / "000000000003.safetensors").string() + ": tensor 'counts' has checksum "));
}

/// Before each of the first `times` openings of a manifest, a writer replaces all checkpoints by a newer one.
struct OvertakenCalls : FileCalls {
  OvertakenCalls(CheckpointWriter& by, std::uint64_t newest, int times) : writer(by), step(newest), left(times) {}
  int open(const char* path, int flags, unsigned mode) const override {
    if (std::string(path).ends_with(".json") && left-- > 0) writer.write(KnownCheckpoint{++step}.contents());
    return FileCalls::open(path, flags, mode);
  }
  CheckpointWriter& writer;
  mutable std::uint64_t step;
  mutable int left;
};

TEST_F(CheckpointFolderTest, FindsTheCheckpointThatReplacesTheNewestWhileItLoads) {
  CheckpointWriter writer(run, {.keep = 1});
  writer.write(KnownCheckpoint{1}.contents());
  const OvertakenCalls twice(writer, 1, 2);
  const NewestCheckpoint newest = CheckpointFolder(run, twice).newest();
  ASSERT_TRUE(newest.checkpoint);
  EXPECT_EQ(*newest.checkpoint, KnownCheckpoint{3});
  // It does not go on for ever.
  const OvertakenCalls always(writer, 3, 1000);
  EXPECT_FALSE(CheckpointFolder(run, always).newest().checkpoint);
  EXPECT_LT(always.step, 100u);
}

TEST_F(CheckpointFolderTest, RefusesManifestsOfOtherFormats) {
  write({1});
  const std::string name = "000000000001.json", good = read_file(run / name);
  const auto refusal = [&](const std::string& from, const std::string& to) {
    put(run / name, good);
    replace_in_manifest(name, from, to);
    return reason(1);
  };
  EXPECT_EQ(refusal("\"version\": 2\n}", "\"version\": 7\n}"),
            name +
                ": manifest has format version 7; this program reads up to 2; expected a file of this version, or a "
                "newer program");
  EXPECT_EQ(refusal("windrow checkpoint", "else"),
            name + ": manifest has format 'else'; expected 'windrow checkpoint'");
  EXPECT_EQ(refusal("\"format\"", "\"x\": 1, \"format\""),
            name + ": has 'x'; expected the values of format version 2 only");
  EXPECT_EQ(refusal("\"format\"", "\"format\": \"x\", \"format\""),
            name + ": manifest has 'format' twice; expected each name once");
  EXPECT_EQ(refusal("\"document\": {", "\"document\": 1, \"y\": {"),
            name + ": has 'y'; expected the values of format version 2 only");
  EXPECT_EQ(refusal("\"step\": 1,\n  \"tensor_file\"", "\"step\": \"1\",\n  \"tensor_file\""),
            name + ": manifest.step is a text; expected an integer that is not negative");
  EXPECT_EQ(refusal("000000000001.safetensors", "000000000002.safetensors"),
            name + ": names the tensor file '000000000002.safetensors'; expected one of step 1");
  EXPECT_EQ(refusal("000000000001.safetensors", "../000000000001.safetensors"),
            name + ": names the tensor file '../000000000001.safetensors'; expected one of step 1");
  EXPECT_EQ(refusal("\"counts\": \"", "\"counts\": \"x"), name + ": has checksum 'x" +
                                                              good.substr(good.find("\"counts\": \"") + 11, 8) +
                                                              "'; expected 8 hexadecimal digits");
  EXPECT_EQ(refusal("\"counts\": \"", "\"count\": \""),
            "000000000001.safetensors: has no tensor 'count'; expected one");
}

/// As Python's package safetensors does: in another order, and with another header.
TEST_F(CheckpointFolderTest, OpensWhatAnotherProgramHasWrittenAgain) {
  write({1});
  const KnownCheckpoint known{1};
  const CheckpointContents contents = known.contents();
  write_tensor_file(run / "000000000001.safetensors",
                    {.tensors = {contents.tensors[1], contents.tensors[0]}, .metadata = {{"format", "np"}}}, calls);
  EXPECT_EQ(*checkpoints.newest().checkpoint, known);
}

TEST_F(CheckpointFolderTest, OpensManifestsThatSayNothingOfShapes) {
  write({1});
  const std::string name = "000000000001.json", good = read_file(run / name);
  const std::size_t shapes = good.find("\"shapes\"");
  replace_in_manifest(name, good.substr(shapes, good.find("\"tensors\"") - shapes), "");
  EXPECT_EQ(*checkpoints.newest().checkpoint, KnownCheckpoint{1});
  std::string content = read_file(run / "000000000001.safetensors");
  content.replace(content.find("[8, 5]"), 6, "[5, 8]");
  put(run / "000000000001.safetensors", content);
  EXPECT_TRUE(reason(1).starts_with("000000000001.safetensors: header has checksum ")) << reason(1);
}

TEST_F(CheckpointFolderTest, RefusesAManifestUnderAnotherName) {
  write({1});
  fs::rename(run / "000000000001.json", run / "000000000002.json");
  EXPECT_EQ(reason(2), "000000000002.json: is the manifest of step 1; expected step 2");
}

TEST_F(CheckpointFolderTest, RemovesWhatInterruptedWritesLeft) {
  write({1});
  const FileNames strangers = {"best.safetensors", "notes.json", "x.json.12-0.new", "000000000009.txt",
                               "9.safetensors"};
  for (const std::string& name : strangers) put(run / name, "a file of the user");
  const FileNames leftovers = {"000000000009.safetensors", "000000000009-2.safetensors", "000000000001-2.safetensors",
                               "000000000009.safetensors.12-0.new", "000000000009.json.12-3.new"};
  for (const std::string& name : leftovers) put(run / name, "part");
  EXPECT_EQ(*checkpoints.newest().checkpoint, KnownCheckpoint{1});
  EXPECT_EQ(names_in(run).size(), 3 + strangers.size() + leftovers.size());
  write({2});
  EXPECT_EQ(names_in(run).size(), 5 + strangers.size());
  for (const std::string& name : strangers) EXPECT_TRUE(fs::exists(run / name)) << name;
}

TEST_F(CheckpointFolderTest, KeepsTheTensorsOfAManifestThatItCannotRead) {
  write({1});
  put(run / "000000000001.json", "{");
  write({2});
  EXPECT_TRUE(fs::exists(run / "000000000001.safetensors"));
}

TEST_F(CheckpointFolderTest, HasOneWriter) {
  const std::string refusal =
      run.string() + ": another writer has locked this folder of checkpoints; expected one writer";
  {
    const CheckpointWriter writer(run, {}, calls);
    EXPECT_EQ(error_of([&] { CheckpointWriter(run, {}, calls); }), refusal);
    const pid_t child = fork();
    if (child == 0) {
      try {
        CheckpointWriter(run, {}, calls);
      } catch (const FileError& error) {
        _exit(error.what() == refusal ? 7 : 8);
      }
      _exit(9);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 7);
    EXPECT_FALSE(checkpoints.newest().checkpoint);  // readers need no lock
  }
  write({1});
  EXPECT_EQ(checkpoints.steps(), Steps{1});
}

TEST_F(CheckpointFolderTest, RefusesContentsThatItCouldNotReadAndStaysUsable) {
  CheckpointWriter writer(run, {}, calls);
  writer.write(KnownCheckpoint{1}.contents());
  const std::vector<float> values(3);
  EXPECT_THROW(writer.write({.step = 2, .tensors = {{"w", {4}, values}}}), MisuseError);
  EXPECT_THROW(writer.write({.step = 2, .document = Record().set("x", "\xff")}), MisuseError);
  EXPECT_EQ(*checkpoints.newest().checkpoint, KnownCheckpoint{1});
  writer.write(KnownCheckpoint{3}.contents());
  EXPECT_EQ(names_in(run).size(), 5u);
  writer.write({.step = 4, .document = Record().set("best", HUGE_VAL)});
  EXPECT_EQ(checkpoints.load(4).document.at("best").number(), HUGE_VAL);
}

}  // namespace
}  // namespace windrow::testing
