// windrow train: optimisers, checkpoints, reports.
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
};

TEST_F(TrainingPrograms, GoOnAsIfTheyHadNotStopped) {
  const std::vector<std::string> straight = epochs_of(run(train("--epochs 3")).out);
  ASSERT_EQ(straight.size(), 3u);
  const std::string first = output(train("--epochs 1 --save-every 3" + saving()));
  EXPECT_EQ(epochs_of(first), std::vector(straight.begin(), straight.begin() + 1));
  const std::string second = output(train("--epochs 3 --resume" + saving()));
  expect_has(second, "continuing from minibatch 7, in ");
  EXPECT_EQ(epochs_of(second), std::vector(straight.begin() + 1, straight.end()));
  expect_lacks(second, "continuing with");
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
  expect_match(refusal_of(run(train("--memory-limit 1000000"))),
               "windrow: out of memory: pool of host: .* would exceed the limit of 1000000; .*\n");
}

TEST_F(TrainingPrograms, NameTheFlagsThatDifferFromThoseOfTheCheckpoint) {
  const auto differences = [&](const std::string& flags) {
    const std::string outcome = output(train("--samples 64 --resume" + saving() + flags));
    const std::size_t at = outcome.find("continuing with ");
    return at == std::string::npos ? "" : outcome.substr(at, outcome.find('\n', at) - at);
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
  const std::string outcome =
      output("windrow train listops --samples 16 --hidden 4 --epochs 1 --batch 8 --resume" + saving());
  expect_has_match(outcome, "continuing from minibatch 0, in .*\n\nepoch .*\n +1 ");
}

TEST_F(TrainingPrograms, SayInOneLineWhatTheyCannotGoOnFrom) {
  const auto refused = [&](const std::string& more) {
    return std::regex_replace(refusal_of(run(train(more))), std::regex(folder.string()), "DIR");
  };
  const std::string no_folder = ": no --save; expected the folder for the checkpoints";
  expect_refusals(train(""), {{"--resume", "--resume: no --save; expected the folder of the checkpoints"},
                              {"--keep 5", "--keep" + no_folder},
                              {"--keep-best", "--keep-best" + no_folder},
                              {"--save-every 3", "--save-every" + no_folder},
                              {"--momentum 0.5", "--momentum with --optimiser adam; expected momentum or nesterov"},
                              {"--rate-epochs 3 --rate-schedule cosine",
                               "--rate-epochs with --rate-schedule cosine; expected step or plateau"}});
  std::ofstream(folder / "run") << "a file";
  EXPECT_EQ(refused(saving()), "windrow: DIR/run: not a folder; expected a folder for checkpoints\n");
  std::filesystem::remove(folder / "run");
  EXPECT_EQ(refused("--resume" + saving()),
            "windrow: DIR/run: no checkpoint; expected one that windrow train --save has written\n");
  ASSERT_EQ(run(train("--epochs 1" + saving())).status, 0);
  EXPECT_EQ(refused(saving()),
            "windrow: DIR/run: has checkpoints of an earlier run, up to step 7; expected another folder, or to resume "
            "that run\n");
  const std::string file = "windrow: DIR/run/000000000007.safetensors: ";
  EXPECT_EQ(refused("--resume --hidden 9" + saving()), file + "a model with hidden 8; expected 9, as the flags say\n");
  EXPECT_EQ(refused("--resume --cell child-sum" + saving()),
            file + "a model with cell \"binary\"; expected \"child-sum\", as the flags say\n");
  EXPECT_EQ(refused("--resume --optimiser sgd" + saving()), file + "of optimiser adam; expected sgd\n");
  EXPECT_EQ(refused("--resume --samples 300" + saving()),
            file + "a model with samples 400; expected 300, as the flags say\n");
  expect_has(run("windrow train listops --samples 40 --hidden 4 --resume" + saving()).err,
             ": a model \"tree-lstm\"; expected \"listops\", as the flags say\n");
  // Several checkpoints, all of them damaged.
  ASSERT_EQ(run(train("--epochs 2 --resume" + saving())).status, 0);
  for (const char* const step : {"000000000007", "000000000014"}) {
    std::filesystem::resize_file(folder / "run" / (std::string(step) + ".safetensors"), 1000);
  }
  expect_match(refused("--resume" + saving()),
               "windrow: DIR/run/000000000014.safetensors: .*; the older checkpoint is damaged, too\n");
}

TEST_F(TrainingPrograms, MakeTheFoldersAboveTheirCheckpoints) {
  const std::filesystem::path deep = folder / "a" / "b" / "c";
  EXPECT_EQ(run(train("--epochs 1 --keep-best --save '" + deep.string() + "'")).err, "");
  EXPECT_TRUE(std::filesystem::exists(deep / "best"));
  std::ofstream(folder / "file") << "x";
  const std::string below = (folder / "file" / "a").string();
  EXPECT_EQ(run(train("--save '" + below + "/b'")).err, "windrow: " + below + "/b: mkdir failed: Not a directory\n");
}

TEST_F(TrainingPrograms, DoNotTrainForATraceThatTheyCannotWrite) {
  const Outcome outcome = run("windrow train listops --samples 8 --hidden 4 --trace /proc/trace.json");
  expect_failed(outcome, "windrow: cannot write the trace '/proc/trace.json': No such file or directory\n");
  expect_lacks(outcome.out, "epoch");
}

TEST_F(TrainingPrograms, KeepTheBestCheckpointBesideTheNewestOnes) {
  const auto score = [&](const std::string& of) {
    const std::string lines = output("windrow eval " + in(of));
    std::smatch value;
    return std::regex_search(lines, value, std::regex("\nroot accuracy ([0-9.]+) %\n")) ? std::stod(value[1]) : -1;
  };
  const std::string flags = train("--samples 64 --rate 0.1 --keep 1 --keep-best" + saving());
  double best = -1;
  for (const int epochs : {1, 2, 3, 4, 5}) {  // the rate is too high, so scores go up and down
    const std::string resume = epochs > 1 ? " --resume" : "";
    EXPECT_EQ(run(flags + " --epochs " + std::to_string(epochs) + resume).err, "");
    const double last = score("run");
    ASSERT_GE(last, 0);
    best = std::max(best, last);
    EXPECT_EQ(score("run/best"), best) << "after epoch " << epochs;
  }
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
    const std::string flags = "--samples 64 --epochs 1 --penalty 1e-4 --clip-norm 5 --accumulate 2 --optimiser ";
    EXPECT_EQ(epochs_of(output(train(flags + optimiser))).size(), 1u) << optimiser;
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
  expect_lacks(run(command).out, "\r");
  const std::string script = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))";
  const Outcome outcome = run_command("python3 -c '" + script + "' '" WINDROW_BIN "'/" + command);
  EXPECT_EQ(outcome.status, 0);
  expect_has_match(outcome.out, "\r\x1b\\[Kepoch 1/2 +[0-9]+ %.*[0-9,]+ trees/s");
  expect_lacks(outcome.out, "\r\x1b[Kepoch 3");
}

TEST_F(TrainingPrograms, BeginWithWordVectorsAndMayKeepThem) {
  const std::filesystem::path file = folder / "vectors.txt";
  std::ofstream(file) << "2 8\ngood2 1 2 3 4 5 6 7 8\nno-such-word 1 1 1 1 1 1 1 1\n";
  const std::string vectors = " --vectors '" + file.string() + "'";
  const std::string with = output(train("--epochs 1" + vectors));
  expect_has_match(with, ": vectors of 1 of the [0-9]+ words; 2 in the file\n");
  const Outcome frozen = run(train("--epochs 1 --freeze-embedding" + vectors));
  EXPECT_NE(epochs_of(frozen.out), epochs_of(with));
  EXPECT_NE(epochs_of(run(train("--epochs 1")).out), epochs_of(with));
  std::ofstream(file) << "w1 1 2 3\n";
  expect_refused(run(train(vectors)),
                 "windrow: " + file.string() + ":1:1: 3 numbers; expected 8, the width of the table\n");
  EXPECT_EQ(run("windrow train listops" + vectors).err,
            "windrow: listops: --vectors or --freeze-embedding; expected neither, because the model embeds no words\n");
}

TEST_F(TrainingPrograms, WriteATimeline) {
  const std::string file = (folder / "run.json").string();
  EXPECT_EQ(run(train("--epochs 1 --samples 16 --trace '" + file + "'")).err, "");
  expect_has(read_file(file), "\"adam_step\"");
  expect_failed(
      run(train("--trace /nowhere/run.json")),
      "windrow: --trace: '/nowhere/run.json'; expected a file in a folder that exists; see windrow train --help\n");
}

TEST_F(TrainingPrograms, WriteAReportForABrowser) {
  const std::string report = " --report '" + (folder / "deep" / "report").string() + "' ";
  const std::string outcome = output(train("--epochs 3 --batch 16 --rate 0.01" + report));
  const std::filesystem::path file = folder / "deep" / "report" / "report.html";
  expect_has(outcome, "report: " + file.string() + "\n");
  EXPECT_EQ(epochs_of(outcome), epochs_of(run(train("--epochs 3 --batch 16 --rate 0.01")).out));
  const std::string page = read_file(file);
  expect_has_all(
      page, {"training on 400 trees, validating on 50. Ended after epoch 3 on 20", "<td>--rate</td><td>0.01 *</td>",
             "<td>--batch</td><td>16 *</td>", "<td>--samples</td><td>400 *</td>", "<td>--cell</td><td>binary</td>",
             "aria-label=\"Loss\"", "Validation root accuracy", "products, epoch 3: ", "<td>processor</td>",
             "<td>tensors on host</td>"});
  expect_lacks(page, "--source");  // flags of other models
  expect_lacks(page, "see below");
  expect_refused(
      run(train("--report '" + file.string() + "'")),
      "windrow: " + file.string() + ": cannot be created: Not a directory; expected a folder for the report\n");
}

/// Also of a model that computes a minibatch in many flushes.
TEST_F(TrainingPrograms, NameCheckpointsByTheMinibatchesTrained) {
  output("windrow train parser --samples 12 --batch 6 --hidden 8 --epochs 2" + saving());
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
  for (const std::string curve : {"training", "validation", "trees/s"}) {
    const std::string title = "<title>" + curve + ", epoch ";
    expect_has_all(page, {title + "1: ", title + "2: ", title + "3: "});
    expect_lacks(page, title + "4: ");
  }
  expect_lacks(page, "<title>products, epoch 2: ");  // of this run
  expect_has(page, "<title>products, epoch 3: ");
}

TEST_F(TrainingPrograms, WriteTheirReportWhenTheyFail) {
  refusal_of(run(train("--optimiser sgd --rate 3e38 --report '" + folder.string() + "'")));
  expect_has(read_file(folder / "report.html"), "Failed after minibatch ");
}

}  // namespace
}  // namespace windrow::testing
