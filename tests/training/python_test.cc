// Tensor files cross between this library and Python, in both directions.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/training/checkpoints.h"
#include "tests/training/files.h"

namespace windrow::testing {
namespace {

class PythonTest : public FileTest {
 protected:
  const std::filesystem::path path = folder / "t.safetensors";

  /// Runs an action of the script. Returns its exit status.
  int python(const std::string& action, const std::filesystem::path& on) const {
    const std::string script = WINDROW_SOURCE_DIR "/tests/training/tensor_files.py";
    const std::string quiet = action == "has-package" ? " 2>/dev/null" : "";
    return std::system(("python3 '" + script + "' " + action + " '" + on.string() + "'" + quiet).c_str());
  }

  // The tensors of the script.
  std::vector<float> weight = {-1, -0.5, 0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5};
  std::vector<std::int32_t> index = {-2, -1, 0, 1, 2};
  std::vector<std::int64_t> large = {-(std::int64_t{1} << 40), std::int64_t{1} << 40};
  std::vector<std::uint64_t> seed = {~std::uint64_t{0}};

  void write() const {
    const FaultyCalls calls;  // which do not wait for the disk
    write_tensor_file(path,
                      {.tensors = {{"weight", {3, 4}, weight},
                                   {"index", {5}, index},
                                   {"large", {2, 1}, large},
                                   {"seed ü", {1}, seed}},
                       .metadata = {{"model", "tree ü"}}},
                      calls);
  }

  void check() const {
    const TensorFile file(path);
    EXPECT_EQ(file.tensors().size(), 4u);
    EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"model", "tree ü"}}));
    std::vector<float> floats(12);
    std::vector<std::int32_t> integers(5);
    std::vector<std::int64_t> longs(2);
    std::vector<std::uint64_t> counts(1);
    file.read("weight", {3, 4}, floats);
    file.read("index", {5}, integers);
    file.read("large", {2, 1}, longs);
    file.read("seed ü", {1}, counts);
    EXPECT_EQ(floats, weight);
    EXPECT_EQ(integers, index);
    EXPECT_EQ(longs, large);
    EXPECT_EQ(counts, seed);
  }
};

TEST_F(PythonTest, ReadsWhatThisLibraryWrites) {
  write();
  EXPECT_EQ(python("check", path), 0);
}

TEST_F(PythonTest, WritesWhatThisLibraryReads) {
  ASSERT_EQ(python("write", path), 0);
  check();
}

TEST_F(PythonTest, ReadsManifests) {
  const FaultyCalls calls;
  CheckpointWriter(folder / "run", {}, calls).write(KnownCheckpoint{7}.contents());
  EXPECT_EQ(python("check-manifest", folder / "run/000000000007.json"), 0);
}

TEST_F(PythonTest, AgreesWithThePackageSafetensors) {
  if (python("has-package", path) != 0) GTEST_SKIP() << "python3 has no packages safetensors and numpy";
  write();
  EXPECT_EQ(python("check-package", path), 0);
  ASSERT_EQ(python("write-package", path), 0);
  check();
}

}  // namespace
}  // namespace windrow::testing
