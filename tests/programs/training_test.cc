// windrow train: optimisers, checkpoints, reports.
#include <algorithm>
#include <regex>

#include "tests/programs/programs.h"
#include "windrow/models/saved_model.h"
#include "windrow/models/trainer.h"

namespace windrow::testing {
namespace {

class TrainingPrograms : public Programs {
 protected:
  std::string train(const std::string& more) const {
    return "windrow train tree-lstm --hidden 8 --embedding 8 --samples 400 --optimiser adam --dropout 0.2 " + more;
  }
  std::string saving() const { return " --save '" + (folder / "run").string() + "' "; }
};

TEST_F(TrainingPrograms, GoOnAsIfTheyHadNotStopped) {
  const std::vector<std::string> straight = epochs_of(run(train("--epochs 3")).out);
  ASSERT_EQ(straight.size(), 3u);
  const Outcome first = run(train("--epochs 1 --save-every 3" + saving()));
  EXPECT_EQ(first.err, "");
  EXPECT_EQ(epochs_of(first.out), std::vector(straight.begin(), straight.begin() + 1));
  const Outcome second = run(train("--epochs 3 --resume" + saving()));
  EXPECT_EQ(second.err, "");
  EXPECT_NE(second.out.find("continuing from minibatch 7, in "), std::string::npos) << second.out;
  EXPECT_EQ(epochs_of(second.out), std::vector(straight.begin() + 1, straight.end()));
  EXPECT_EQ(second.out.find("continuing with"), std::string::npos) << second.out;
  // Nothing is left to train, so there is nothing to report.
  const std::filesystem::path report = folder / "report.html";
  for (const char* const kept : {"", "; that of an earlier run is kept"}) {
    const std::string done = run(train("--epochs 3 --resume --report '" + folder.string() + "'" + saving())).out;
    EXPECT_TRUE(done.ends_with(std::string("\n\nall 3 epochs are done; more with --epochs\n"
                                           "report: not written, since this run trained nothing") +
                               kept + "\n"))
        << done;
    EXPECT_EQ(std::filesystem::exists(report), *kept != 0);
    std::ofstream(report) << "earlier";
  }
  EXPECT_EQ(read_file(report), "earlier");
}

/// With a step size that changes nothing, no epoch after the first has a better score.
TEST_F(TrainingPrograms, HaveLostTheirPatienceForGood) {
  const std::string still = train("--samples 64 --rate 1e-30 --dropout 0 --epochs 9 --patience ");
  const Outcome first = run(still + "2" + saving());
  EXPECT_EQ(epochs_of(first.out).size(), 3u) << first.out;
  EXPECT_TRUE(first.out.ends_with("\nstopped after 2 epochs without a better score\n")) << first.out;
  const std::string again = run(still + "2 --resume" + saving()).out;
  EXPECT_TRUE(again.ends_with("\n\nstopped after 2 epochs without a better score\n")) << again;
  EXPECT_EQ(epochs_of(again).size(), 0u) << again;
  EXPECT_EQ(epochs_of(run(still + "3 --resume" + saving()).out).size(), 1u);
}

TEST_F(TrainingPrograms, StayWithinALimitOfMemoryOrSayThatItIsTooLittle) {
  const std::vector<std::string> free = epochs_of(run(train("--epochs 2")).out);
  EXPECT_EQ(epochs_of(run(train("--epochs 2 --memory-limit 5000000")).out), free);
  const Outcome little = run(train("--memory-limit 1000000"));
  EXPECT_TRUE(little.err.starts_with("windrow: out of memory: pool of host: ")) << little.err;
  EXPECT_NE(little.err.find("would exceed the limit of 1000000; "), std::string::npos) << little.err;
  EXPECT_EQ(std::count(little.err.begin(), little.err.end(), '\n'), 1) << little.err;
  EXPECT_EQ(little.status, 2);
  EXPECT_EQ(run(train("--memory-limit 5000000 --devices cpu:0,cpu:1")).err,
            "windrow: --memory-limit and --devices; expected one of both\n");
}

TEST_F(TrainingPrograms, NameTheFlagsThatDifferFromThoseOfTheCheckpoint) {
  const auto differences = [&](const std::string& flags) {
    const Outcome outcome = run(train("--samples 64 --resume" + saving() + flags));
    EXPECT_EQ(outcome.err, "");
    const std::size_t at = outcome.out.find("continuing with ");
    return at == std::string::npos ? "" : outcome.out.substr(at, outcome.out.find('\n', at) - at);
  };
  ASSERT_EQ(run(train("--samples 64 --epochs 1 --rate 0.002 --rate-schedule cosine" + saving())).err, "");
  EXPECT_EQ(differences("--epochs 1 --rate 2e-3 --rate-schedule cosine --clip-norm 0.0"), "");
  EXPECT_EQ(differences("--epochs 2 --rate 0.002 --rate-schedule cosine"), "continuing with --epochs 2 (was 1)");
  EXPECT_EQ(
      differences("--epochs 3 --batch 32 --clip-norm 5 --rate-schedule step --schedule agenda"),
      "continuing with --batch 32 (was 64), --clip-norm 5 (was 0), --rate 0.001 (was 0.002), --rate-schedule step "
      "(was cosine), --schedule agenda (was level)");
  EXPECT_EQ(differences("--epochs 4 --batch 32 --clip-norm 5 --rate-schedule step --schedule agenda"), "");
}

TEST_F(TrainingPrograms, GoOnFromCheckpointsThatHaveNoFlags) {
  Engine engine;
  const Device device = host_device(engine);
  Workload workload = make_workload("listops", device, {.samples = 16, .sizes = {{"hidden", 4}}});
  Trainer trainer(device, workload, {});
  Record document;
  document.set_format(training_format).set("model", model_record(workload));
  document.set("scores", Record().set("without_improvement", 0));
  {
    CheckpointWriter writer(folder / "run", {});
    trainer.save(writer, document);
  }
  const Outcome outcome = run("windrow train listops --samples 16 --hidden 4 --epochs 1 --batch 8 --resume" + saving());
  EXPECT_EQ(outcome.err, "");
  EXPECT_TRUE(std::regex_search(outcome.out, std::regex("continuing from minibatch 0, in .*\n\nepoch .*\n +1 ")))
      << outcome.out;
}

TEST_F(TrainingPrograms, SayInOneLineWhatTheyCannotGoOnFrom) {
  const auto refused = [&](const std::string& more) {
    const Outcome outcome = run(train(more));
    EXPECT_EQ(outcome.status, 2) << outcome.out;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    return std::regex_replace(outcome.err, std::regex(folder.string()), "DIR");
  };
  EXPECT_EQ(refused("--resume"), "windrow: --resume: no --save; expected the folder of the checkpoints\n");
  EXPECT_EQ(refused("--keep 5"), "windrow: --keep: no --save; expected the folder for the checkpoints\n");
  EXPECT_EQ(refused("--momentum 0.5"), "windrow: --momentum with --optimiser adam; expected momentum or nesterov\n");
  EXPECT_EQ(refused("--rate-epochs 3 --rate-schedule cosine"),
            "windrow: --rate-epochs with --rate-schedule cosine; expected step or plateau\n");
  EXPECT_EQ(refused("--save-every 3"), "windrow: --save-every: no --save; expected the folder for the checkpoints\n");
  std::ofstream(folder / "run") << "a file";
  EXPECT_EQ(refused(saving()), "windrow: DIR/run: not a folder; expected a folder for checkpoints\n");
  std::filesystem::remove(folder / "run");
  EXPECT_EQ(refused("--resume" + saving()),
            "windrow: DIR/run: no checkpoint; expected one that windrow train --save has written\n");
  ASSERT_EQ(run(train("--epochs 1" + saving())).status, 0);
  EXPECT_EQ(refused(saving()),
            "windrow: DIR/run: has checkpoints of another training; expected --resume, or another folder\n");
  const std::string file = "windrow: DIR/run/000000000007.safetensors: ";
  EXPECT_EQ(refused("--resume --hidden 9" + saving()), file + "a model with hidden 8; expected 9, as the flags say\n");
  EXPECT_EQ(refused("--resume --cell child-sum" + saving()),
            file + "a model with cell \"binary\"; expected \"child-sum\", as the flags say\n");
  EXPECT_EQ(refused("--resume --optimiser sgd" + saving()), file + "of optimiser adam; expected sgd\n");
  EXPECT_EQ(refused("--resume --samples 300" + saving()),
            file + "a model with samples 400; expected 300, as the flags say\n");
  const std::string other = run("windrow train listops --samples 40 --hidden 4 --resume" + saving()).err;
  EXPECT_TRUE(other.ends_with(": a model \"tree-lstm\"; expected \"listops\", as the flags say\n")) << other;
  // Several checkpoints, all of them damaged.
  ASSERT_EQ(run(train("--epochs 2 --resume" + saving())).status, 0);
  for (const char* const step : {"000000000007", "000000000014"}) {
    std::filesystem::resize_file(folder / "run" / (std::string(step) + ".safetensors"), 1000);
  }
  const std::string damaged = refused("--resume" + saving());
  EXPECT_TRUE(damaged.starts_with("windrow: DIR/run/000000000014.safetensors: ")) << damaged;
  EXPECT_TRUE(damaged.ends_with("; the older checkpoint is damaged, too\n")) << damaged;
}

TEST_F(TrainingPrograms, MakeTheFoldersAboveTheirCheckpoints) {
  const std::filesystem::path deep = folder / "a" / "b" / "c";
  EXPECT_EQ(run(train("--epochs 1 --keep-best --save '" + deep.string() + "'")).err, "");
  EXPECT_TRUE(std::filesystem::exists(deep / "best"));
  std::ofstream(folder / "file") << "x";
  const std::string below = (folder / "file" / "a").string();
  EXPECT_EQ(run(train("--save '" + below + "/b'")).err,
            "windrow: " + below + ": cannot be created: Not a directory; expected a folder\n");
}

TEST_F(TrainingPrograms, DoNotTrainForATraceThatTheyCannotWrite) {
  const Outcome outcome = run("windrow train listops --samples 8 --hidden 4 --trace /proc/trace.json");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.out.find("epoch"), std::string::npos) << outcome.out;
  EXPECT_EQ(outcome.err, "windrow: cannot write the trace '/proc/trace.json': No such file or directory\n");
}

TEST_F(TrainingPrograms, KeepTheBestCheckpointBesideTheNewestOnes) {
  const auto score = [&](const std::string& of) {
    const std::vector<std::string> lines = lines_of(run("windrow eval '" + (folder / of).string() + "'"));
    return lines.size() < 2 ? "" : lines[1];
  };
  const std::regex root("root accuracy ([0-9.]+) %");
  const auto value = [&](const std::string& line) {
    std::smatch match;
    return std::regex_match(line, match, root) ? std::stod(match[1]) : -1;
  };
  const std::string flags = train("--samples 64 --rate 0.1 --keep 1 --keep-best" + saving());
  double best = -1;
  for (const int epochs : {1, 2, 3, 4, 5}) {  // the rate is too high, so scores go up and down
    const std::string resume = epochs > 1 ? " --resume" : "";
    EXPECT_EQ(run(flags + " --epochs " + std::to_string(epochs) + resume).err, "");
    const double last = value(score("run"));
    ASSERT_GE(last, 0);
    best = std::max(best, last);
    EXPECT_EQ(value(score("run/best")), best) << "after epoch " << epochs;
  }
  EXPECT_EQ(run(flags).err, "windrow: " + (folder / "run").string() +
                                ": has checkpoints of another training; expected --resume, or another folder\n");
  EXPECT_EQ(run(train("--keep-best")).err,
            "windrow: --keep-best: no --save; expected the folder for the checkpoints\n");
}

TEST_F(TrainingPrograms, KeepFrozenWhatACheckpointHasFrozen) {
  const std::string flags = train("--samples 64 --batch 16 --epochs "), freeze = " --freeze-embedding";
  const std::vector<std::string> straight = epochs_of(run(flags + "2" + freeze).out);
  ASSERT_EQ(straight.size(), 2u);
  ASSERT_EQ(run(flags + "1" + freeze + saving()).err, "");
  EXPECT_EQ(epochs_of(run(flags + "2 --resume" + saving()).out), std::vector(straight.begin() + 1, straight.end()));
  const std::string other = " --save " + in("other");
  ASSERT_EQ(run(flags + "1" + other).err, "");
  expect_failed(run(flags + "2 --resume" + freeze + other),
                "windrow: " + (folder / "other" / "000000000004.safetensors").string() +
                    ": of a training that changed parameter 'words'; expected one in which it was frozen, as "
                    "it is now\n");
}

TEST_F(TrainingPrograms, TrainByEveryOptimiserAndSchedule) {
  for (const std::string optimiser : {"sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam"}) {
    const std::vector<std::string> epochs = epochs_of(
        run("windrow train tree-lstm --hidden 8 --embedding 8 --samples 64 --epochs 1 --penalty 1e-4 --clip-norm 5 "
            "--accumulate 2 --optimiser " +
            optimiser)
            .out);
    EXPECT_EQ(epochs.size(), 1u) << optimiser;
  }
  std::vector<std::string> last;
  for (const std::string schedule : {"constant", "step --rate-epochs 1", "cosine --warm-up 3", "plateau"}) {
    last.push_back(
        epochs_of(run(train("--samples 64 --batch 8 --epochs 3 --rate 0.01 --rate-schedule " + schedule)).out).at(2));
  }
  EXPECT_NE(last[0], last[1]);
  EXPECT_NE(last[0], last[2]);
}

TEST_F(TrainingPrograms, ShowTheirProgressOnATerminalOnly) {
  const std::string command = train("--epochs 2");
  EXPECT_EQ(run(command).out.find('\r'), std::string::npos);
  const std::string script = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
  const Outcome outcome = run_command("python3 -c '" + script + "' '" WINDROW_BIN "'/" + command);
  EXPECT_EQ(outcome.status, 0);
  EXPECT_TRUE(std::regex_search(outcome.out, std::regex("\r\x1b\\[Kepoch 1/2 +[0-9]+ %.*[0-9,]+ trees/s")))
      << outcome.out;
  EXPECT_EQ(outcome.out.find("\r\x1b[Kepoch 3"), std::string::npos);
}

TEST_F(TrainingPrograms, BeginWithWordVectorsAndMayKeepThem) {
  const std::filesystem::path file = folder / "vectors.txt";
  std::ofstream(file) << "2 8\ngood2 1 2 3 4 5 6 7 8\nno-such-word 1 1 1 1 1 1 1 1\n";
  const std::string vectors = " --vectors '" + file.string() + "'";
  const Outcome with = run(train("--epochs 1" + vectors));
  EXPECT_EQ(with.err, "");
  EXPECT_TRUE(std::regex_search(with.out, std::regex(": vectors of 1 of the [0-9]+ words; 2 in the file\n")))
      << with.out;
  const Outcome frozen = run(train("--epochs 1 --freeze-embedding" + vectors));
  EXPECT_NE(epochs_of(frozen.out), epochs_of(with.out));
  EXPECT_NE(epochs_of(run(train("--epochs 1")).out), epochs_of(with.out));
  std::ofstream(file) << "w1 1 2 3\n";
  expect_refused(run(train(vectors)),
                 "windrow: " + file.string() + ":1:1: 3 numbers; expected 8, the width of the table\n");
  EXPECT_EQ(run("windrow train listops" + vectors).err,
            "windrow: listops: --vectors or --freeze-embedding; expected neither, because the model embeds no words\n");
}

TEST_F(TrainingPrograms, WriteATimeline) {
  const std::string file = (folder / "run.json").string();
  EXPECT_EQ(run(train("--epochs 1 --samples 16 --trace '" + file + "'")).err, "");
  EXPECT_NE(read_file(file).find("\"adam_step\""), std::string::npos);
  const Outcome outcome = run(train("--trace /nowhere/run.json"));
  EXPECT_EQ(
      outcome.err,
      "windrow: --trace: '/nowhere/run.json'; expected a file in a folder that exists; see windrow train --help\n");
  EXPECT_EQ(outcome.status, 2);
}

TEST_F(TrainingPrograms, WriteAReportForABrowser) {
  const std::string report = " --report '" + (folder / "deep" / "report").string() + "' ";
  const Outcome outcome = run(train("--epochs 3 --batch 16 --rate 0.01" + report));
  EXPECT_EQ(outcome.err, "");
  const std::filesystem::path file = folder / "deep" / "report" / "report.html";
  EXPECT_NE(outcome.out.find("report: " + file.string() + "\n"), std::string::npos) << outcome.out;
  EXPECT_EQ(epochs_of(outcome.out), epochs_of(run(train("--epochs 3 --batch 16 --rate 0.01")).out));
  const std::string page = read_file(file);
  for (const char* part :
       {"training on 400 trees, validating on 50. Ended after epoch 3 on 20", "<td>--rate</td><td>0.01 *</td>",
        "<td>--batch</td><td>16 *</td>", "<td>--samples</td><td>400 *</td>", "<td>--cell</td><td>binary</td>",
        "aria-label=\"Loss\"", "Validation root accuracy", "products, epoch 3: ", "<td>processor</td>"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(page.find("--source"), std::string::npos) << "flags of other models";
  EXPECT_EQ(page.find("see below"), std::string::npos);
  expect_refused(
      run(train("--report '" + file.string() + "'")),
      "windrow: " + file.string() + ": cannot be created: Not a directory; expected a folder for the report\n");
}

/// Also of a model that computes a minibatch in many flushes.
TEST_F(TrainingPrograms, NameCheckpointsByTheMinibatchesTrained) {
  const Outcome outcome = run("windrow train parser --samples 12 --batch 6 --hidden 8 --epochs 2" + saving());
  EXPECT_EQ(outcome.err, "");
  EXPECT_TRUE(std::filesystem::exists(folder / "run" / "000000000002.json"));
  EXPECT_TRUE(std::filesystem::exists(folder / "run" / "000000000004.json"));
}

/// A file that is opened later does not get the output.
TEST_F(TrainingPrograms, WriteNoOutputIntoTheirFiles) {
  expect_refused(run(train("--epochs 1" + saving()), ">&-"),
                 "windrow: cannot write standard output: Bad file descriptor\n");
  EXPECT_EQ(read_file(folder / "run" / "lock"), "");
}

/// Also those that ran before the training stopped, and no others.
TEST_F(TrainingPrograms, ReportAllEpochsOfATrainingThatGoesOn) {
  const std::string report = " --report '" + folder.string() + "'" + saving();
  ASSERT_EQ(run(train("--epochs 2" + report)).err, "");
  ASSERT_EQ(run(train("--epochs 3 --resume" + report)).err, "");
  const std::string page = read_file(folder / "report.html");
  const auto epochs_in = [&](const std::string& curve) {
    std::string found;
    for (const char* const number : {"1", "2", "3", "4"}) {
      if (page.find("<title>" + curve + ", epoch " + number + ": ") != std::string::npos) found += number;
    }
    return found;
  };
  for (const char* const curve : {"training", "validation", "trees/s"}) EXPECT_EQ(epochs_in(curve), "123");
  EXPECT_EQ(epochs_in("products"), "3") << "of this run";
}

TEST_F(TrainingPrograms, WriteTheirReportWhenTheyFail) {
  const Outcome outcome = run(train("--optimiser sgd --rate 3e38 --report '" + folder.string() + "'"));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_NE(read_file(folder / "report.html").find("Failed after minibatch "), std::string::npos);
}

}  // namespace
}  // namespace windrow::testing
