// The programs as a person meets them: their output and their error messages. benchmarks_test.cc tests what
// windrow-perf measures.
#include "tests/programs.h"

#include <sys/resource.h>

#include <algorithm>
#include <regex>

#include "tests/programs_lists.h"
#include "tests/sanitized.h"
#include "windrow/models/treebank.h"

namespace windrow::testing {
namespace {

struct Wrong {
  const char* command;
  const char* says;
};

class WrongArguments : public Programs, public ::testing::WithParamInterface<Wrong> {};
using Train = Programs;
using Help = Programs;

TEST_P(WrongArguments, EndInOneLineAndStatus2) {
  const Outcome outcome = run(GetParam().command);
  EXPECT_EQ(outcome.err, GetParam().says + std::string("\n"));
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.status, 2);
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongArguments,
    ::testing::Values(
        Wrong{"windrow", "windrow: no command; expected one of " COMMANDS "; see windrow --help"},
        Wrong{"windrow learn", "windrow: unknown command 'learn'; expected one of " COMMANDS "; see windrow --help"},
        Wrong{"windrow --fast",
              "windrow: unknown argument '--fast'; expected one of --help, --version; see windrow --help"},
        Wrong{"windrow --epochs 1 train tree-lstm",
              "windrow: '--epochs' comes before the command; expected it after 'train'" TRAIN_HELP},
        Wrong{"windrow train", "windrow: no model; expected one of " MODELS TRAIN_HELP},
        Wrong{"windrow train transformer", "windrow: model: 'transformer'; expected one of " MODELS TRAIN_HELP},
        Wrong{"windrow train tree-lstm --hiden 3", "windrow: unknown argument '--hiden'; expected one of " FLAGS},
        Wrong{"windrow train tree-lstm --epochs", "windrow: --epochs: no value; expected 1 to 1048576" TRAIN_HELP},
        Wrong{"windrow train tree-lstm --workers 0",
              "windrow: --workers: '0'; expected a whole number, 1 to 1024" TRAIN_HELP},
        Wrong{"windrow train tree-lstm --batch 0",
              "windrow: --batch: '0'; expected a whole number, 1 to 1048576" TRAIN_HELP},
        Wrong{"windrow train tree-lstm --hidden -8",
              "windrow: --hidden: '-8'; expected a whole number, 1 to 65536" TRAIN_HELP},
        Wrong{"windrow train bilstm --layers 65",
              "windrow: --layers: '65'; expected a whole number, 1 to 64" TRAIN_HELP},
        Wrong{"windrow train tree-lstm --compare=false", "windrow: --compare: has a value; expected none" TRAIN_HELP},
        Wrong{"windrow-perf optimisers --batch 3",
              "windrow-perf: unknown argument '--batch'; expected one of --help, --hidden, --workers, --turn-ms, "
              "--repetitions, --out; see windrow-perf optimisers --help"},
        Wrong{"windrow-perf engine --json=0", "windrow-perf: --json: has a value; expected none" ENGINE_HELP},
        Wrong{"windrow train tree-lstm --epochs many",
              "windrow: --epochs: 'many'; expected a whole number, 1 to 1048576" TRAIN_HELP},
        Wrong{"windrow train tree-lstm --seed ''",
              "windrow: --seed: ''; expected a whole number, 0 to 4294967295" TRAIN_HELP},
        Wrong{"windrow train tree-lstm --rate nan", "windrow: --rate: 'nan'; expected a number above 0" TRAIN_HELP},
        Wrong{"windrow train tree-lstm --policy fast",
              "windrow: --policy: 'fast'; expected one of serial, pool, per_device, chaos" TRAIN_HELP},
        Wrong{"windrow train tree-lstm --device toaster",
              "windrow: --device: 'toaster'; expected cpu or cuda:N; windrow devices lists them" TRAIN_HELP},
        Wrong{"windrow train tree-lstm --data /nowhere",
              "windrow: --data: '/nowhere' is not a folder; expected an existing folder" TRAIN_HELP},
        Wrong{"windrow train tree-lstm --data ''",
              "windrow: --data: '' is not a folder; expected an existing folder" TRAIN_HELP},
        Wrong{"windrow train tree-lstm --data /dev",
              "windrow: /dev: no train.txt; expected the training set under such a name, or another file by --train"},
        Wrong{"windrow train tree-lstm --cell round",
              "windrow: --cell: 'round'; expected one of binary, child-sum, attention" TRAIN_HELP},
        Wrong{"windrow train bilstm --leaves 3",
              "windrow: bilstm: size 'leaves' is unknown; expected hidden, embedding, layers"},
        Wrong{"windrow train dag --cell binary",
              "windrow: dag: cell 'binary'; expected none, because it has a single cell"},
        Wrong{"windrow train dag --source de",
              "windrow: dag: a source or target language; expected none, because the model does not translate"},
        Wrong{"windrow train seq2seq --source de",
              "windrow: seq2seq: a source or target language of generated data; expected a data folder"},
        Wrong{"windrow train seq2seq --target train.de",
              "windrow: --target: 'train.de'; expected the end of a file's name, such as de" TRAIN_HELP},
        Wrong{"windrow train dag --rate-schedule step --rate-factor 0",
              "windrow: --rate-factor: '0'; expected a number above 0, less than 1" TRAIN_HELP},
        Wrong{"windrow train dag --crf",
              "windrow: dag: switch 'crf'; expected none, because it has nothing to switch on"},
        Wrong{"windrow train bilstm --crf=1", "windrow: --crf: has a value; expected none" TRAIN_HELP},
        Wrong{"windrow train tree-fc --data /dev",
              "windrow: tree-fc: data folder '/dev'; expected none, because its data are always generated"},
        Wrong{"windrow train tree-fc --leaves 1", "windrow: tree-fc: leaves 1; expected at least 2"},
        Wrong{"windrow train bilstm --data /dev",
              "windrow: /dev: no all.txt, aij-wikiner-*-wp3 or aij-wikiner-*-wp2; expected the training set under such "
              "a name, or another file by --train"},
        Wrong{"windrow train bilstm --train ''",
              "windrow: --train: ''; expected the name of a file in the folder of --data, or its path" TRAIN_HELP},
        Wrong{"windrow schedule rnn",
              "windrow: model: 'rnn'; expected one of " MODELS_WITH_GRAPHS "; see windrow schedule --help"},
        Wrong{"windrow schedule parser --samples 1",
              "windrow: model: 'parser'; expected one of " MODELS_WITH_GRAPHS "; see windrow schedule --help"},
        Wrong{"windrow-perf train --model all --data /dev",
              "windrow-perf: --data with several models; expected one model, because each has its own files"},
        Wrong{"windrow-perf train --model all --embedding 3",
              "windrow-perf: tree-fc: size 'embedding' is unknown; expected hidden, leaves"},
        Wrong{"windrow-perf schedules --model all --layers 3",
              "windrow-perf: tree-lstm: size 'layers' is unknown; expected hidden, embedding, classes"},
        Wrong{"windrow-perf ablation --model tree-lstm,dag --cell child-sum",
              "windrow-perf: dag: cell 'child-sum'; expected none, because it has a single cell"},
        Wrong{"windrow-perf hand --layers 65",
              "windrow-perf: --layers: '65'; expected a whole number, 1 to 64; see windrow-perf hand --help"},
        Wrong{"windrow-perf serial --out ''",
              "windrow-perf: --out: '' is not a folder; expected the name of a folder; see windrow-perf serial --help"},
        Wrong{"windrow schedule --schedule best",
              "windrow: --schedule: 'best'; expected one of level, depth, agenda, learned, serial, or several "
              "separated by "
              "commas; see windrow schedule --help"},
        Wrong{"windrow-perf train --model rnn",
              "windrow-perf: --model: 'rnn'; expected one of " MODELS ", all, or several separated by commas; see "
              "windrow-perf train --help"},
        Wrong{
            "windrow-perf train --model tree-lstm --workers 1,0",
            "windrow-perf: --workers: '1,0'; expected whole numbers, 1 to 1024, separated by commas; see windrow-perf "
            "train --help"},
        Wrong{
            "windrow-perf engine --pattern A,G",
            "windrow-perf: --pattern: 'G'; expected one of A, B, C, D, E, FA, FD, all, or several separated by commas; "
            "see windrow-perf engine --help"},
        Wrong{"windrow-perf engine --systems mxnet",
              "windrow-perf: --systems: 'mxnet'; expected one of windrow, windrow-bulk, windrow-captures, "
              "windrow-per-device, windrow-async, openmp, tbb, tbb-graph, taskflow, taskflow-graph, starpu, all, or "
              "several separated by commas" ENGINE_HELP},
        Wrong{"windrow-perf engine --width 1",
              "windrow-perf: --width: '1'; expected a whole number, 2 to 65536" ENGINE_HELP},
        Wrong{"windrow-perf engine --backlog 0",
              "windrow-perf: --backlog: '0'; expected a whole number, 1 to 1073741824" ENGINE_HELP},
        Wrong{"windrow-perf engine --metg --backlog 10", "windrow-perf: --backlog excludes --metg" ENGINE_HELP},
        Wrong{"windrow-perf engine --metg --task-ns 10", "windrow-perf: --task-ns excludes --metg" ENGINE_HELP},
        Wrong{"windrow-perf engine --backlog 10 --ops 10", "windrow-perf: --ops excludes --backlog" ENGINE_HELP},
        Wrong{"windrow-perf engine --start --pattern A", "windrow-perf: --pattern excludes --start" ENGINE_HELP},
        Wrong{"windrow-perf train --model tree-lstm --without speed",
              "windrow-perf: --without: 'speed'; expected one of specialisation, packing, eager, lazy, slots, "
              "in-place, sharing, fusion, streaming, splitting, ahead, or several separated by commas; see "
              "windrow-perf train "
              "--help"},
        Wrong{"windrow-perf memory --model parser",
              "windrow-perf: --model: 'parser'; expected one of " MODELS_WITH_GRAPHS
              ", all, or several separated by commas; see windrow-perf memory --help"},
        Wrong{"windrow-perf serial --batch 0",
              "windrow-perf: --batch: '0'; expected whole numbers, 1 to 1048576, separated by commas; see windrow-perf "
              "serial --help"},
        Wrong{"windrow-perf ablation --batch 1,2",
              "windrow-perf: --batch: '1,2'; expected a whole number, 1 to 1048576; see windrow-perf ablation --help"},
        Wrong{"windrow-perf hand --repetitions 0",
              "windrow-perf: --repetitions: '0'; expected a whole number, 1 to 1048576; see windrow-perf hand --help"},
        Wrong{"windrow-perf schedules --data /dev",
              "windrow-perf: --data with several models; expected one model, because each has its own files"},
        Wrong{"windrow-perf train --model tree-lstm --workers 1,",
              "windrow-perf: --workers: '1,'; expected whole numbers, 1 to 1024, separated by commas; see windrow-perf "
              "train --help"}));

TEST_F(Train, StopsAtALossThatIsNotFinite) {
  const Outcome outcome = run("windrow train tree-lstm --hidden 8 --embedding 8 --epochs 1 --rate 3e38");
  EXPECT_TRUE(std::regex_search(
      outcome.err,
      std::regex(R"(^windrow: .*op 'loss' \(.*\) failed: minibatch \d+ of tree_lstm: the loss of vertex \d+ of )"
                 R"(graph \d+ \(tree \d+\) is \S+, expected a finite number; .*'\w+'.*\n$)")))
      << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_EQ(outcome.status, 2);
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
  for (const char* command : {"windrow train", "windrow schedule", "windrow-perf engine", "windrow-perf hand"}) {
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

TEST_F(Train, PrintsTheLossAndTheValidationScoresOfEachEpoch) {
  const Outcome outcome = run("windrow train tree-lstm --hidden 8 --embedding 8 --epochs 2 --workers 2 --compare");
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.status, 0);
  const std::string row = R"( +[0-9.]+ +[0-9.]+ % +[0-9.]+ % +\d+\n)";
  EXPECT_TRUE(outcome.out.starts_with("tree-lstm, generated data: training on 4,096 trees, validating on 512\n"));
  EXPECT_TRUE(std::regex_search(
      outcome.out,
      std::regex("epoch +training loss +validation root accuracy +validation all-node accuracy +trees/s\n +1" + row +
                 " +2" + row + "\n +trees/s\nbatched +\\d+\none vertex at a time +\\d+ .*\nspeedup +[0-9.]+\n$")))
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
  const auto expect_refused = [](const Outcome& outcome) {
    EXPECT_EQ(outcome.status, 2);
    EXPECT_TRUE(outcome.err.starts_with("windrow: cannot write standard output: ")) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  };
  expect_refused(run("windrow train tree-lstm --hidden 8 --embedding 8 --epochs 1", ">/dev/full"));
  expect_refused(run("windrow --help", ">/dev/full"));
  expect_refused(run("windrow --help", ">&-"));
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
