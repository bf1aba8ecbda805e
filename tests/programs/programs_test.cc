// The programs as a person meets them: their output, their error messages, and what signals do.
#include "tests/programs/programs.h"

#include <sys/stat.h>

#include "tests/sanitized.h"
#include "windrow/models/datasets.h"

namespace windrow::testing {
namespace {

using Train = Programs;
using Help = Programs;

TEST_F(Train, StopsAtALossThatIsNotFinite) {
  expect_failed(run("windrow train tree-lstm --hidden 8 --embedding 8 --epochs 1 --rate 3e38"),
                "windrow: the loss is not finite at minibatch 2; try a lower --rate or --clip-norm\n");
  for (const std::string model : {"parser --scorer 8", "mlp", "listops", "seq2seq", "bilstm --crf"}) {
    const Outcome other = run("windrow train " + model + " --hidden 8 --samples 64 --batch 8 --epochs 9 --rate 1e37");
    expect_match(other.err,
                 "windrow: the loss is not finite at minibatch [2-9]; try a lower "
                 "--rate or --clip-norm\n");
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
  expect_has_all(
      output("windrow train --help"),
      {"\n  model                       Model to train [one of tree-lstm, tree-fc, ",
       "\n  --data DIR                  Folder with the model's data files [default: generated data]\n",
       "\n  --hidden N                  Hidden size [1 to 65536; default: see below]\n",
       "\n  --batch N                   Samples per minibatch [1 to 1048576; default: 64]\n",
       "\n  --rate X                    Learning rate (applied to the loss per sample); by default 0.05 with "});
  expect_has_all(output("windrow-perf ablation --help"),
                 {"\n  --hidden N                  Hidden size [1 to 65536; default: 128]\n",
                  "\n  --samples N                 Training samples per measurement [1 to 16777216; default: 96]\n",
                  "\n  fusion          run small steps one after another"});
}

TEST_F(Help, NamesTheVersionOfTheProjectAndTheCommit) {
  const std::string project = read_file(WINDROW_SOURCE_DIR "/CMakeLists.txt");
  std::smatch version;
  ASSERT_TRUE(std::regex_search(project, version, std::regex("project\\(windrow VERSION ([0-9]+\\.[0-9]+\\.[0-9]+) ")));
  const std::string name = "windrow " + version.str(1);
  expect_match(line_of(run("windrow --version")),
               std::regex_replace(name, std::regex("\\."), "\\.") + ", commit ([0-9a-f]{12,}|unknown)");
  expect_has(output("windrow man"), ".TH WINDROW 1 \"\" \"" + name + "\" ");
  expect_has(read_file(WINDROW_SOURCE_DIR "/CHANGELOG.md"), "\n## " + version.str(1) + "\n");
}

TEST_F(Help, BreaksItsLinesOfFlags) {
  for (const char* command : {"windrow train", "windrow schedule", "windrow-perf engine", "windrow-perf static"}) {
    for (const std::string& line : lines_of(run(std::string(command) + " --help"))) {
      if (!line.starts_with("  --")) continue;
      EXPECT_LE(line.size(), 110u) << line;
    }
  }
}

TEST_F(Train, SaysOnceThatMemoryRanOut) {
  if (sanitized) GTEST_SKIP() << "sanitizers need more memory than this test allows";
  for (const std::string program : {"windrow train tree-lstm", "windrow-perf train --model tree-lstm"}) {
    const Outcome outcome = run_command("ulimit -v 6291456; '" WINDROW_BIN "'/" + program +
                                        " --hidden 65536 --embedding 65536 --samples 4");
    expect_match(refusal_of(outcome), program.substr(0, program.find(' ')) +
                                          ": out of memory: .* bytes are not to be had.*; "
                                          "expected more memory or smaller sizes\n");
    expect_lacks(outcome.out, "nobody waited");
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
      expect_refused(within(megabytes, "windrow " + command), "windrow" + why);
    }
    EXPECT_EQ(within(megabytes, "windrow-perf train --model tree-lstm").err, "windrow-perf" + why);
    for (const std::string command : {"--version", "--help", "train --help", "help train", "man", "devices"}) {
      output_of(within(megabytes, "windrow " + command));
    }
  }
  output_of(within(512, "windrow " + small));
}

TEST_F(Train, PrintsTheLossAndTheValidationScoresOfEachEpoch) {
  const std::string outcome =
      output("windrow train tree-lstm --hidden 8 --embedding 8 --epochs 2 --workers 2 --compare");
  const std::string row = R"( +[0-9.]+ +[0-9.]+ % +[0-9.]+ % +\d+\n)";
  EXPECT_TRUE(outcome.starts_with("tree-lstm, generated data: training on 4,096 trees, validating on 512\n"));
  expect_has_match(outcome, "epoch +training loss +validation: root accuracy +all-node accuracy +trees/s\n +1" + row +
                                " +2" + row +
                                "\n +trees/s\nbatched +\\d+\none vertex at a time +\\d+ .*\nspeedup +[0-9.]+\n$");
}

TEST_F(Train, TrainsEveryModel) {
  for (const std::string model :
       {"tree-lstm --cell child-sum", "tree-fc --leaves 5", "fixed-lstm --vocabulary 50 --steps 9",
        "var-lstm --vocabulary 50", "var-lstm --vocabulary 50 --tied --embedding 8", "bilstm --layers 2",
        "bilstm --crf", "bilstm-char --character-hidden 5", "listops", "dag", "parser --scorer 8", "mlp",
        "cnn --filters 2 --more-filters 3 --graph off"}) {
    const Outcome outcome = run("windrow train " + model + " --samples 16 --hidden 8 --epochs 2 --compare");
    const std::string name = model.substr(0, model.find(' '));
    EXPECT_TRUE(outcome.out.starts_with(name + ", generated data: training on ")) << outcome.out;
    EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 3 + 2 + 5) << outcome.out;
    for (const std::string& line : lines_of(outcome)) EXPECT_LE(line.size(), 80u) << line;
  }
}

TEST_F(Train, TakesTheLastOfAFlagAndZerosBeforeANumber) {
  const std::string outcome =
      output("windrow train tree-lstm --hidden 8 --embedding 8 --epochs 9 --epochs 010 --epochs 02");
  EXPECT_EQ(std::count(outcome.begin(), outcome.end(), '\n'), 3 + 2) << outcome;
}

TEST_F(Train, SaysIfItsOutputCannotBeWritten) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "needs /dev/full";
  const auto expect_failure = [](const Outcome& outcome) {
    EXPECT_TRUE(refusal_of(outcome).starts_with("windrow: cannot write standard output: ")) << outcome.err;
  };
  expect_failure(run("windrow train tree-lstm --hidden 8 --embedding 8 --epochs 1", ">/dev/full"));
  expect_failure(run("windrow --help", ">/dev/full"));
  expect_failure(run("windrow --help", ">&-"));
}

class Signalled : public Programs {
 protected:
  std::string reporting() const { return " --report '" + (folder / "run").string() + "' "; }
  /// Runs windrow with these arguments in a shell, as the process $p, and `commands` when the test `begun` holds.
  Outcome beside(const std::string& arguments, const std::string& begun, const std::string& commands,
                 const std::string& before = {}) const {
    Outcome outcome = run_command("{ cd '" + folder.string() + "'; " + before + "'" WINDROW_BIN "'/windrow " +
                                  arguments + " 2>errors & p=$!; until " + begun +
                                  " || ! kill -0 $p; do sleep 0.02; done; " + commands + "; wait $p; }");
    outcome.err = read_file(folder / "errors");  // the shell has something to say, too
    return outcome;
  }
};

// An epoch has ended.
const std::string trained = "grep -q ' %' out";
const std::string saved = "ls run/0*.json >/dev/null 2>&1";
const std::string stopping = ": stopping after this minibatch; press again to quit now\n";
const std::string endless = "train tree-lstm --hidden 8 --embedding 8 --samples 64 --epochs 1000000";

TEST_F(Signalled, EndAtOnceInOneLineBeforeTheTrainingBegins) {
  // The folder is made before samples are generated, which takes much longer.
  const std::string slow = "train tree-lstm --samples 10000000 --hidden 8 --embedding 8" + saving();
  for (const auto& [signal, status] : {std::pair("INT", 130), std::pair("TERM", 143), std::pair("HUP", 129)}) {
    std::filesystem::remove_all(folder / "run");
    const Outcome outcome = beside(slow, "[ -e run/lock ]", "kill -" + std::string(signal) + " $p");
    EXPECT_EQ(outcome.status, status);
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(outcome.err, "windrow: ended by SIG" + std::string(signal) + " before the training began\n");
  }
}

TEST_F(Signalled, SayAtOnceThatTheyStopAfterTheMinibatchAndSaveThen) {
  std::string resume;
  for (const auto& [signal, status] : {std::pair("INT", 130), std::pair("TERM", 143), std::pair("HUP", 129)}) {
    const Outcome outcome =
        beside(endless + saving() + reporting() + resume, trained, "kill -" + std::string(signal) + " $p");
    resume = " --resume";
    EXPECT_EQ(outcome.status, status) << outcome.out << outcome.err;
    EXPECT_EQ(outcome.err, "windrow: SIG" + std::string(signal) + stopping);
    expect_has_match(outcome.out, "stopped by SIG" + std::string(signal) +
                                      " after minibatch [0-9,]+; --resume continues from "
                                      "there\nreport: .*/run/report.html\n$");
    expect_has(read_file(folder / "run" / "report.html"), "Stopped by a signal after minibatch ");
  }
}

TEST_F(Signalled, WriteTheirTimeline) {
  const Outcome outcome = beside(endless + " --trace run.json", trained, "kill -INT $p");
  EXPECT_EQ(outcome.status, 130) << outcome.err;
  expect_has(read_file(folder / "run.json"), "\"sgd_step\"");
}

/// Ctrl-C goes to all programs of a pipeline, and the reader of the output is the first one that ends.
TEST_F(Signalled, ReportThoughTheSameSignalHasEndedTheReader) {
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  const Outcome outcome = beside(endless + saving() + reporting() + " >pipe", saved,
                                 "kill -STOP $p; kill -KILL $r; kill -INT $p; kill -CONT $p", "cat pipe >log & r=$!; ");
  EXPECT_EQ(outcome.status, 130);
  EXPECT_EQ(outcome.err, "windrow: SIGINT" + stopping);
  EXPECT_TRUE(std::filesystem::exists(folder / "run" / "report.html"));
}

TEST_F(Signalled, GoOnUnderNohup) {
  const Outcome outcome = beside(endless + saving(), saved, "kill -HUP $p; sleep 0.1; kill -TERM $p", "trap '' HUP; ");
  EXPECT_EQ(outcome.status, 143) << outcome.out << outcome.err;
  EXPECT_EQ(outcome.err, "windrow: SIGTERM" + stopping);
}

/// Also if no epoch ends for long.
TEST_F(Signalled, ShowTheirProgressInALogWhileAnEpochRuns) {
  const Outcome outcome = beside("train tree-lstm --samples 30000 --hidden 256 --embedding 256 --epochs 1" + saving(),
                                 "grep -q 'epoch 1/1 ' out", "kill -KILL $p");
  expect_has_match(outcome.out, "trees/s\nepoch 1/1 +[0-9]+ %.*[0-9,]+ trees/s\n$");
}

TEST_F(Signalled, KeepTheirTimelineSmallAndSaySo) {
  const std::string train =
      "windrow train tree-lstm --hidden 8 --embedding 8 --samples 4000 --batch 2 --policy serial ";
  const std::string file = (folder / "run.json").string();
  const std::string outcome = output(train + "--epochs 1 --trace '" + file + "'");
  expect_has_match(outcome, "\ntrace: .*/run.json: the first 65,536 ops of each thread; [0-9,]+ more are left out\n$");
  expect_has(read_file(file), "the trace was full");
}

}  // namespace
}  // namespace windrow::testing
