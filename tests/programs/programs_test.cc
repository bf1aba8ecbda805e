// The programs as a person meets them: their output and their error messages. benchmarks_test.cc tests what
// windrow-perf measures.
#include "tests/programs/programs.h"

#include <sys/resource.h>

#include <algorithm>
#include <regex>

#include "tests/sanitized.h"
#include "windrow/models/treebank.h"

namespace windrow::testing {
namespace {

using Train = Programs;
using Help = Programs;

TEST_F(Train, StopsAtALossThatIsNotFinite) {
  expect_failed(run("windrow train tree-lstm --hidden 8 --embedding 8 --epochs 1 --rate 3e38"),
                "windrow: the loss is not finite at minibatch 2; try a lower --rate or --clip-norm\n");
  for (const std::string model : {"parser --scorer 8", "mlp", "listops", "seq2seq", "bilstm --crf"}) {
    const Outcome other = run("windrow train " + model + " --hidden 8 --samples 64 --batch 8 --epochs 9 --rate 1e37");
    EXPECT_TRUE(
        std::regex_match(other.err, std::regex("windrow: the loss is not finite at minibatch [2-9]; try a lower "
                                               "--rate or --clip-norm\n")))
        << model << ": " << other.err;
  }
}

TEST_F(Train, KeepsItsColumnsForLossesOfAnySize) {
  const auto lines =
      lines_of(run("windrow train tree-lstm --hidden 8 --embedding 8 --samples 64 --epochs 3 --rate 1e20"));
  ASSERT_EQ(lines.size(), 6u);
  for (std::size_t i = 3; i < lines.size(); ++i) EXPECT_EQ(lines[i].size(), lines[2].size()) << lines[i];
}

TEST_F(Train, TakesTheNamesThatFlagsHaveElsewhere) {
  const std::string train = "windrow train tree-lstm --hidden 8 --embedding 8 --samples 64 --epochs 1 ";
  const auto expected = epochs_of(run(train + "--optimiser adam --rate 0.01").out);
  ASSERT_EQ(expected.size(), 1u);
  EXPECT_EQ(epochs_of(run(train + "--optimizer adam --lr 0.01").out), expected);
  EXPECT_EQ(epochs_of(run(train + "--optim=adam --learning-rate 0.01").out), expected);
}

TEST_F(Help, MayStandBeforeTheCommand) {
  EXPECT_EQ(lines_of(run("windrow help train")), lines_of(run("windrow train --help")));
  EXPECT_EQ(lines_of(run("windrow help")), lines_of(run("windrow --help")));
}

TEST_F(Help, ShowsTheAcceptedValuesAndTheDefaultOfEachFlag) {
  const Outcome train = run("windrow train --help");
  EXPECT_EQ(train.status, 0);
  for (const char* line :
       {"\n  model                       Model to train [one of tree-lstm, tree-fc, ",
        "\n  --data DIR                  Folder with the model's data files [default: generated data]\n",
        "\n  --hidden N                  Hidden size [1 to 65536; default: see below]\n",
        "\n  --batch N                   Samples per minibatch [1 to 1048576; default: 64]\n",
        "\n  --rate X                    Learning rate (applied to the loss per sample); by default 0.05 with "}) {
    EXPECT_NE(train.out.find(line), std::string::npos) << line << train.out;
  }
  const Outcome table = run("windrow-perf ablation --help");
  for (const char* line :
       {"\n  --hidden N                  Hidden size [1 to 65536; default: 128]\n",
        "\n  --samples N                 Training samples per measurement [1 to 16777216; default: 96]\n",
        "\n  fusion          run small steps one after another"}) {
    EXPECT_NE(table.out.find(line), std::string::npos) << line << table.out;
  }
}

TEST_F(Help, NamesTheVersionAndTheCommit) {
  const auto lines = lines_of(run("windrow --version"));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(
      std::regex_match(lines[0], std::regex("windrow [0-9]+\\.[0-9]+\\.[0-9]+, commit ([0-9a-f]{12,}|unknown)")))
      << lines[0];
}

TEST_F(Help, BreaksItsLinesOfFlags) {
  for (const char* command : {"windrow train", "windrow schedule", "windrow-perf engine", "windrow-perf static"}) {
    for (const std::string& line : lines_of(run(std::string(command) + " --help"))) {
      if (!line.starts_with("  --")) continue;
      EXPECT_LE(line.size(), 110u) << line;
    }
  }
}

/// For this process and those that it starts.
class MemoryLimit {
 public:
  explicit MemoryLimit(rlim_t bytes) {
    getrlimit(RLIMIT_AS, &before_);
    const rlimit limit{std::min(bytes, before_.rlim_max), before_.rlim_max};
    setrlimit(RLIMIT_AS, &limit);
  }
  ~MemoryLimit() { setrlimit(RLIMIT_AS, &before_); }
  MemoryLimit(const MemoryLimit&) = delete;
  MemoryLimit& operator=(const MemoryLimit&) = delete;

 private:
  rlimit before_{};
};

TEST_F(Train, SaysOnceThatMemoryRanOut) {
  if (sanitized) GTEST_SKIP() << "sanitizers need more memory than this test allows";
  const MemoryLimit limit(rlim_t{6} << 30);
  for (const std::string program : {"windrow train tree-lstm", "windrow-perf train --model tree-lstm"}) {
    const Outcome outcome = run(program + " --hidden 65536 --embedding 65536 --samples 4");
    EXPECT_TRUE(std::regex_match(
        outcome.err, std::regex(program.substr(0, program.find(' ')) + ": out of memory: .* bytes are not to be had.*; "
                                                                       "expected more memory or smaller sizes\n")))
        << outcome.err;
    EXPECT_EQ(outcome.out.find("nobody waited"), std::string::npos) << outcome.out;
    EXPECT_EQ(outcome.status, 2);
  }
}

/// Libraries of kernels end the process where they get too little.
TEST_F(Train, IsRefusedAtItsBeginInLittleAddressSpace) {
  if (sanitized) GTEST_SKIP() << "sanitizers need more memory than this test allows";
  const std::string small = "train tree-lstm --hidden 4 --embedding 4 --samples 16 --epochs 1 --workers 2";
  const std::string run_folder = " '" + (folder / "run").string() + "' ";
  ASSERT_EQ(run("windrow " + small + " --save" + run_folder).err, "");
  const auto within = [&](int megabytes, const std::string& command) {
    return run_command("ulimit -v " + std::to_string(megabytes << 10) + "; '" WINDROW_BIN "'/" + command);
  };
  for (const int megabytes : {120, 511}) {
    const std::string why =
        ": address space is limited to " + std::to_string(megabytes) + " MiB; expected at least 512 MiB (ulimit -v)\n";
    for (const std::string& command :
         {small, "resume" + run_folder + "--epochs 2", "eval" + run_folder, "predict" + run_folder + "--text w1",
          "sample" + run_folder, "export" + run_folder + "--to " + in("file"), std::string("explain tree-lstm"),
          std::string("schedule tree-lstm")}) {
      const Outcome outcome = within(megabytes, "windrow " + command);
      EXPECT_EQ(outcome.err, "windrow" + why) << command;
      EXPECT_EQ(outcome.out, "") << command;
      EXPECT_EQ(outcome.status, 2) << command;
    }
    EXPECT_EQ(within(megabytes, "windrow-perf train --model tree-lstm").err, "windrow-perf" + why);
    for (const std::string command : {"--version", "--help", "train --help", "help train", "man", "devices"}) {
      const Outcome outcome = within(megabytes, "windrow " + command);
      EXPECT_EQ(outcome.err, "") << command;
      EXPECT_EQ(outcome.status, 0) << command;
    }
  }
  const Outcome enough = within(512, "windrow " + small);
  EXPECT_EQ(enough.err, "");
  EXPECT_EQ(enough.status, 0);
}

TEST_F(Train, PrintsTheLossAndTheValidationScoresOfEachEpoch) {
  const Outcome outcome = run("windrow train tree-lstm --hidden 8 --embedding 8 --epochs 2 --workers 2 --compare");
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.status, 0);
  const std::string row = R"( +[0-9.]+ +[0-9.]+ % +[0-9.]+ % +\d+\n)";
  EXPECT_TRUE(outcome.out.starts_with("tree-lstm, generated data: training on 4,096 trees, validating on 512\n"));
  EXPECT_TRUE(std::regex_search(
      outcome.out,
      std::regex("epoch +training loss +validation: root accuracy +all-node accuracy +trees/s\n +1" + row + " +2" +
                 row + "\n +trees/s\nbatched +\\d+\none vertex at a time +\\d+ .*\nspeedup +[0-9.]+\n$")))
      << outcome.out;
}

TEST_F(Train, TrainsEveryModel) {
  for (const std::string model :
       {"tree-lstm --cell child-sum", "tree-fc --leaves 5", "fixed-lstm --vocabulary 50 --steps 9",
        "var-lstm --vocabulary 50", "var-lstm --vocabulary 50 --tied --embedding 8", "bilstm --layers 2",
        "bilstm --crf", "bilstm-char --character-hidden 5", "listops", "dag", "parser --scorer 8", "mlp",
        "cnn --filters 2 --more-filters 3 --graph off"}) {
    const Outcome outcome = run("windrow train " + model + " --samples 16 --hidden 8 --epochs 2 --compare");
    EXPECT_EQ(outcome.err, "");
    EXPECT_EQ(outcome.status, 0);
    const std::string name = model.substr(0, model.find(' '));
    EXPECT_TRUE(outcome.out.starts_with(name + ", generated data: training on ")) << outcome.out;
    EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 3 + 2 + 5) << outcome.out;
    for (const std::string& line : lines_of(outcome)) EXPECT_LE(line.size(), 80u) << line;
  }
}

TEST_F(Train, TrainsOnAFolder) {
  for (const char* part : {"train.txt", "dev.txt"}) std::ofstream(folder / part) << windrow::generate_treebank(20, 1);
  const std::string command = "windrow train tree-lstm --data '" + folder.string() + "' --hidden 8 --embedding 8 ";
  const Outcome outcome = run(command + "--epochs 3");
  EXPECT_EQ(outcome.err, "");
  EXPECT_NE(outcome.out.find(": training on 20 trees of train.txt, validating on 20 of dev.txt\n"), std::string::npos)
      << outcome.out;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 3 + 3) << outcome.out;
  const auto first_loss = [](const std::string& out) { return out.substr(out.find("\n    1") + 6, 16); };
  EXPECT_NE(first_loss(run(command + "--epochs 1 --seed 2").out), first_loss(outcome.out));
}

TEST_F(Train, TakesTheLastOfAFlagAndZerosBeforeANumber) {
  const Outcome outcome = run("windrow train tree-lstm --hidden 8 --embedding 8 --epochs 9 --epochs 010 --epochs 02");
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 3 + 2) << outcome.out;
}

TEST_F(Train, SaysIfItsOutputCannotBeWritten) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "needs /dev/full";
  const auto expect_failure = [](const Outcome& outcome) {
    EXPECT_EQ(outcome.status, 2);
    EXPECT_TRUE(outcome.err.starts_with("windrow: cannot write standard output: ")) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  };
  expect_failure(run("windrow train tree-lstm --hidden 8 --embedding 8 --epochs 1", ">/dev/full"));
  expect_failure(run("windrow --help", ">/dev/full"));
  expect_failure(run("windrow --help", ">&-"));
}

TEST_F(Train, GivesTheSameLossesForAnyNumberOfWorkers) {
  const auto losses = [this](const std::string& flags) {
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
  EXPECT_EQ(losses("--schedule depth"), one);
  EXPECT_NE(losses("--batch 32"), one);
  EXPECT_NE(losses("--rate 0.01"), one);
}

}  // namespace
}  // namespace windrow::testing
