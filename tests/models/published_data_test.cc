// The published data, where WINDROW_DATA names the folder that holds them: their known counts. Data are under terms of
// their own, so none are here.
#include "tests/models/data.h"
#include "windrow/models/workload.h"
#include "windrow/training/internal/deal.h"

namespace windrow::testing {
namespace {

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
  Engine engine;
  WorkloadOptions options = {.data = file(expected.folder).string()};
  options.training_file = expected.file;
  options.validation_file = expected.validation_file;
  const Workload workload = make_workload(expected.name, host_device(engine), options);
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
