// windrow train, stopped by signals.
#include <sys/stat.h>

#include <regex>

#include "tests/programs/programs.h"

namespace windrow::testing {
namespace {

class Signalled : public Programs {
 protected:
  std::string saving() const { return " --save '" + (folder / "run").string() + "' "; }
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
    EXPECT_TRUE(std::regex_search(outcome.out, std::regex("stopped by SIG" + std::string(signal) +
                                                          " after minibatch [0-9,]+; --resume continues from "
                                                          "there\nreport: .*/run/report.html\n$")))
        << outcome.out;
    EXPECT_NE(read_file(folder / "run" / "report.html").find("Stopped by a signal after minibatch "),
              std::string::npos);
  }
}

TEST_F(Signalled, WriteTheirTimeline) {
  const Outcome outcome = beside(endless + " --trace run.json", trained, "kill -INT $p");
  EXPECT_EQ(outcome.status, 130) << outcome.err;
  EXPECT_NE(read_file(folder / "run.json").find("\"sgd_step\""), std::string::npos);
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
  EXPECT_TRUE(std::regex_search(outcome.out, std::regex("trees/s\nepoch 1/1 +[0-9]+ %.*[0-9,]+ trees/s\n$")))
      << outcome.out;
}

TEST_F(Signalled, KeepTheirTimelineSmallAndSaySo) {
  const std::string train =
      "windrow train tree-lstm --hidden 8 --embedding 8 --samples 4000 --batch 2 --policy serial ";
  const std::string file = (folder / "run.json").string();
  const Outcome outcome = run(train + "--epochs 1 --trace '" + file + "'");
  EXPECT_EQ(outcome.err, "");
  EXPECT_TRUE(std::regex_search(
      outcome.out,
      std::regex("\ntrace: .*/run.json: the first 65,536 ops of each thread; [0-9,]+ more are left out\n$")))
      << outcome.out;
  EXPECT_NE(read_file(file).find("the trace was full"), std::string::npos);
}

}  // namespace
}  // namespace windrow::testing
