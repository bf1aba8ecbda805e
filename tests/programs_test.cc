// The programs as a person meets them: what they print, and what they say to what they cannot do.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>

namespace {

struct Outcome {
  std::string out, err;
  int status;
};

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// A folder of its own for each test, since tests run side by side.
std::filesystem::path folder() {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  std::string name = std::string("windrow_") + test->test_suite_name() + "_" + test->name();
  std::replace(name.begin(), name.end(), '/', '_');
  const auto path = std::filesystem::path(::testing::TempDir()) / name;
  std::filesystem::create_directories(path);
  return path;
}

/// Runs one of the programs by the shell.
Outcome run(const std::string& command) {
  const auto out = folder() / "out", err = folder() / "err";
  const int status =
      std::system((std::string(WINDROW_BIN "/") + command + " >" + out.string() + " 2>" + err.string()).c_str());
  return {read_file(out), read_file(err), WEXITSTATUS(status)};
}

struct Wrong {
  const char* command;
  const char* says;
};

class WrongArguments : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongArguments, EndInOneLineAndStatus2) {
  const Outcome outcome = run(GetParam().command);
  EXPECT_EQ(outcome.err, GetParam().says + std::string("\n"));
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.status, 2);
}

#define FLAGS                                                                                                        \
  "--help, model, --data, --hidden, --embedding, --batch, --epochs, --rate, --workers, --policy, --seed, --device, " \
  "--compare"
INSTANTIATE_TEST_SUITE_P(
    All, WrongArguments,
    ::testing::Values(
        Wrong{"windrow", "windrow: A subcommand is required; see windrow --help"},
        Wrong{"windrow learn", "windrow: unknown command 'learn'; expected train"},
        Wrong{"windrow --fast", "windrow: unknown argument '--fast'; expected --help"},
        Wrong{"windrow train", "windrow: model is required; see windrow --help"},
        Wrong{"windrow train transformer", "windrow: model: 'transformer'; expected tree-lstm; see windrow --help"},
        Wrong{"windrow train tree-lstm --hiden 3", "windrow: unknown argument '--hiden'; expected one of " FLAGS},
        Wrong{"windrow train tree-lstm again", "windrow: unknown argument 'again'; expected one of " FLAGS},
        Wrong{"windrow train tree-lstm --workers 0",
              "windrow: --workers: '0'; expected a whole number, 1 to 1024; see windrow --help"},
        Wrong{"windrow train tree-lstm --batch 0",
              "windrow: --batch: '0'; expected a whole number, 1 to 1048576; see windrow --help"},
        Wrong{"windrow train tree-lstm --hidden -8",
              "windrow: --hidden: '-8'; expected a whole number, 1 to 1048576; see windrow --help"},
        Wrong{"windrow train tree-lstm --epochs many",
              "windrow: --epochs: 'many'; expected a whole number, 1 to 1048576; see windrow --help"},
        Wrong{"windrow train tree-lstm --rate nan",
              "windrow: --rate: 'nan'; expected a number above 0; see windrow --help"},
        Wrong{"windrow train tree-lstm --policy fast",
              "windrow: --policy: 'fast'; expected one of serial, pool, per_device, chaos; see windrow --help"},
        Wrong{"windrow train tree-lstm --device toaster",
              "windrow: --device: 'toaster'; expected cpu; see windrow --help"},
        Wrong{"windrow train tree-lstm --data /nowhere",
              "windrow: /nowhere/train.txt: cannot be opened; expected a file of trees, one a line"},
        Wrong{"windrow-perf train --model rnn",
              "windrow-perf: --model: 'rnn'; expected tree-lstm; see windrow-perf --help"},
        Wrong{"windrow-perf train --model tree-lstm --workers 1,0",
              "windrow-perf: --workers: '0'; expected a whole number, 1 to 1024; see windrow-perf --help"}));

TEST(Data, IsRefusedByFileLineAndColumn) {
  const auto data = folder();
  std::ofstream(data / "train.txt") << "(3 (2 It) (4 works))\n(3 (2 It) (7 works))\n";
  const Outcome outcome = run("windrow train tree-lstm --data " + data.string());
  EXPECT_EQ(outcome.err,
            "windrow: " + (data / "train.txt").string() + ":2:12: label '7'; expected a label from 0 to 4\n");
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(read_file(data / "train.txt"), "(3 (2 It) (4 works))\n(3 (2 It) (7 works))\n");
}

TEST(Data, MayNotBeEmpty) {
  const auto data = folder();
  std::ofstream(data / "train.txt") << "(2 Yes)\n";
  std::ofstream(data / "dev.txt") << "\n";
  const Outcome outcome = run("windrow train tree-lstm --data " + data.string());
  EXPECT_EQ(outcome.err, "windrow: " + (data / "dev.txt").string() +
                             ":1:1: no tree; expected one a line, such as (3 (2 It) (4 works))\n");
  EXPECT_EQ(outcome.status, 2);
}

TEST(Train, StopsAtALossThatIsNotFinite) {
  const Outcome outcome = run("windrow train tree-lstm --hidden 8 --embedding 8 --epochs 1 --rate 1e30");
  EXPECT_TRUE(std::regex_search(
      outcome.err,
      std::regex(R"(^windrow: op 'loss' \(.*\) failed: minibatch \d+ of tree_lstm: the loss of vertex \d+ of )"
                 R"(graph \d+ is \S+, expected a finite number; .*'\w+'.*\n$)")))
      << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_EQ(outcome.status, 2);
}

TEST(Train, PrintsWhatWasLearnedEpochByEpoch) {
  const Outcome outcome = run("windrow train tree-lstm --hidden 8 --embedding 8 --epochs 2 --workers 2 --compare");
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.status, 0);
  const std::string row = R"( +[0-9.]+ +[0-9.]+ % +[0-9.]+ % +\d+\n)";
  EXPECT_TRUE(std::regex_search(
      outcome.out, std::regex("epoch +loss a vertex +root accuracy +all-node accuracy +trees/s\n +1" + row + " +2" +
                              row + "\n +trees/s\nbatched +\\d+\none vertex at a time +\\d+ .*\nfactor +[0-9.]+\n$")))
      << outcome.out;
}

TEST(Train, GivesTheSameLossesForAnyNumberOfWorkers) {
  const auto losses = [](const std::string& flags) {
    const std::string out = run("windrow train tree-lstm --hidden 8 --embedding 8 --epochs 2 --seed 4 " + flags).out;
    std::string numbers;
    static const std::regex row(R"(\n +\d+ +([0-9.]+ +[0-9.]+ % +[0-9.]+ %))");
    for (std::sregex_iterator it(out.begin(), out.end(), row), end; it != end; ++it) numbers += (*it)[1].str() + "\n";
    return numbers;
  };
  const std::string one = losses("--workers 1");
  EXPECT_EQ(std::count(one.begin(), one.end(), '\n'), 2);
  EXPECT_EQ(losses("--workers 8"), one);
  EXPECT_EQ(losses("--policy serial"), one);
}

TEST(Perf, PrintsOneObjectALineWithAllFigures) {
  const Outcome outcome =
      run("windrow-perf train --model tree-lstm --hidden 8 --embedding 8 --passes 1 --workers 1,2 --json");
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.status, 0);
  std::string line = R"re(\{"model": "tree-lstm", "workers": %, "unit": "trees")re";
  for (const char* field : {"units_per_s", "units_per_s_median", "flops_per_unit", "peak_gflops", "peak_share",
                            "schedule_ns_per_vertex", "unbatched_units_per_s", "peak_rss_mb"}) {
    line += std::string(", \"") + field + R"re(": [0-9.e+-]+)re";
  }
  const auto of = [&](const char* workers) { return std::string(line).replace(line.find('%'), 1, workers) + "\\}\n"; };
  EXPECT_TRUE(std::regex_match(outcome.out, std::regex(of("1") + of("2")))) << outcome.out;
}

TEST(Perf, ListsEveryBenchmarkWithItsCommand) {
  const Outcome outcome = run("windrow-perf --help");
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.out.find("windrow-perf train --model tree-lstm --data DIR --hidden 256 --embedding 256 --batch 64"),
            std::string::npos)
      << outcome.out;
}

}  // namespace
