// windrow train with several devices and processes.
#include "tests/programs/programs.h"

namespace windrow::testing {
namespace {

class MemberPrograms : public Programs {
 protected:
  static double loss_of(const std::string& epoch) { return std::stod(epoch.substr(6)); }
  static std::string train(const std::string& more) { return train_on("--samples 200", more); }
  static std::string train_on(const std::string& samples, const std::string& more) {
    return "windrow train tree-lstm --hidden 8 --embedding 8 " + samples + " --epochs 2 --optimiser adam " + more;
  }
  Outcome run_processes(int count, const std::string& command) const {
    return run_mpi("-n " + std::to_string(count) + " '" WINDROW_BIN "'/" + command);
  }
  Outcome run_mpi(const std::string& processes) const {
    // Containers may forbid processes to read each other's memory, which Open MPI takes for a failure.
    return run_command("OMPI_MCA_btl_vader_single_copy_mechanism=none timeout 60 " WINDROW_MPIRUN
                       " --allow-run-as-root --oversubscribe " +
                       processes);
  }
};

TEST_F(MemberPrograms, TakeTheStepsOfOneDevice) {
  const std::vector<std::string> one = epochs_of(run(train("")).out);
  ASSERT_EQ(one.size(), 2u);
  for (const std::string devices : {"cpu:0,cpu:1", "cpu:0,cpu:1,cpu:2"}) {
    const std::vector<std::string> several = epochs_of(output(train("--devices " + devices)));
    ASSERT_EQ(several.size(), 2u);
    for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(loss_of(several[i]), loss_of(one[i]), 2e-3) << several[i];
    EXPECT_EQ(epochs_of(run(train("--policy per_device --workers 3 --devices " + devices)).out), several);
  }
}

TEST_F(MemberPrograms, TrainWithAccumulatedCompressedAndLocalGradients) {
  const auto last_loss = [&](const std::string& more) {
    const auto epochs = epochs_of(output(train(more)));
    EXPECT_EQ(epochs.size(), 2u) << more;
    return epochs.empty() ? 0 : loss_of(epochs.back());
  };
  const std::string two = "--devices cpu:0,cpu:1 --batch 16";
  EXPECT_NEAR(last_loss(two + " --accumulate 3"), last_loss("--batch 16 --accumulate 3"), 2e-3);
  const double plain = last_loss(two);
  EXPECT_NEAR(last_loss(two + " --micro-batches 3"), plain, 2e-3);
  EXPECT_NEAR(last_loss("--batch 16 --micro-batches 100 --dropout 0.3"), last_loss("--batch 16 --dropout 0.3"), 2e-3);
  EXPECT_NEAR(last_loss(two + " --compress bfloat16"), plain, 1e-2);
  // These take other steps, and learn all the same.
  const double untrained = last_loss("--batch 16 --rate 1e-9");
  EXPECT_LT(last_loss(two + " --local-steps 3"), plain + (untrained - plain) / 2);
}

/// Most of the time goes into checkpoints after epochs, so signals come while rank 0 writes one.
TEST_F(MemberPrograms, StopTogetherAtASignalAndHaveSavedWhatTheySay) {
  const std::string endless = train("--epochs 1000000 --samples 64 --devices cpu:0,cpu:1 --comm-timeout 5 --save '" +
                                    (folder / "run").string() + "' --resume");
  EXPECT_EQ(run(train("--epochs 1 --samples 64 --save " + in("run"))).err, "");
  for (const std::string seconds : {"0", "0.03", "0.06", "0.09"}) {
    SCOPED_TRACE(seconds);
    const Outcome outcome =
        run_command("{ '" WINDROW_BIN "'/" + endless + " & p=$!; until grep -q ' %' '" + (folder / "out").string() +
                    "'; do sleep 0.02; done; sleep " + seconds + "; kill -TERM $p; wait $p; }");
    EXPECT_EQ(outcome.status, 143) << outcome.err;
    std::smatch match;
    ASSERT_TRUE(std::regex_search(outcome.out, match,
                                  std::regex("stopped by SIGTERM after minibatch ([0-9,]+); --resume continues")))
        << outcome.out;
    const std::string digits = std::regex_replace(match[1].str(), std::regex(","), "");
    EXPECT_TRUE(exists(folder / "run" / (std::string(12 - digits.size(), '0') + digits + ".json"))) << digits;
  }
}

TEST_F(MemberPrograms, GiveTheSameResultsAndCheckpointsWithAShardedUpdate) {
  const std::string three = " --devices cpu:0,cpu:1,cpu:2 --clip-norm 0.5 --average 0.9";
  const auto trained = [&](const std::string& where, const std::string& more) {
    return epochs_of(output(train(three + " --save " + in(where) + "--save-every 2 --keep-best" + more)));
  };
  const auto tensors = [&](const std::string& where) {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder / where)) {
      if (entry.path().extension() != ".safetensors") continue;
      files[std::filesystem::relative(entry.path(), folder / where)] = read_file(entry.path());
    }
    return files;
  };
  const std::vector<std::string> whole = trained("whole", "");
  ASSERT_EQ(whole.size(), 2u);
  EXPECT_EQ(trained("sharded", " --sharded"), whole);
  EXPECT_GE(tensors("whole").size(), 4u);
  EXPECT_TRUE(tensors("sharded") == tensors("whole"));

  // The second epoch with another number of members, and without sharding.
  EXPECT_EQ(trained("sharded first", " --sharded --epochs 1").size(), 1u);
  std::filesystem::copy(folder / "sharded first", folder / "two", std::filesystem::copy_options::recursive);
  EXPECT_EQ(trained("sharded first", " --resume"), std::vector<std::string>{whole[1]});
  const std::vector<std::string> two = trained("two", " --resume --sharded --devices cpu:0,cpu:1");
  ASSERT_EQ(two.size(), 1u);
  EXPECT_NEAR(loss_of(two[0]), loss_of(whole[1]), 2e-3);
}

TEST_F(MemberPrograms, RefuseWhatMembersCannotDo) {
  const std::string two = "--devices cpu:0,cpu:1 ", both = "; expected one of both",
                    names = "expected cpu:N or cuda:N, with different numbers below 64, separated by commas" TRAIN_HELP,
                    no_mpirun = ": not started by mpirun; expected mpirun -n PROCESSES windrow ...";
  expect_refusals(train(""), {{"--devices cpu:0,cpu:0", "--devices: 'cpu:0,cpu:0'; " + names},
                              {"--devices cpu:00", "--devices: 'cpu:00'; " + names},
                              {"--devices cpu:0,", "--devices: 'cpu:0,'; " + names},
                              {two + "--accumulate 2 --local-steps 2", "--local-steps and --accumulate" + both},
                              {"--local-steps 2", "--local-steps; expected --devices or --comm mpi, too"},
                              {two + "--sharded --local-steps 2", "--sharded and --local-steps" + both},
                              {two + "--sharded --compress bfloat16", "--sharded and --compress" + both},
                              {two + "--data /tmp", "--data excludes --samples" TRAIN_HELP},
                              {two + "--memory-limit 5000000", "--memory-limit and --devices" + both},
                              {"--comm nccl", "--comm nccl" + no_mpirun},
                              {"--comm mpi", "--comm mpi" + no_mpirun}});
}

TEST_F(MemberPrograms, RefuseProcessesWithoutComm) {
  const auto said = [&](const std::string& environment, const std::string& more = "") {
    const Outcome outcome = run_command(environment + " '" WINDROW_BIN "'/" + train("--epochs 1 " + more));
    EXPECT_EQ(epochs_of(outcome.out).size(), outcome.status == 0 ? 1u : 0u) << outcome.out;
    EXPECT_EQ(outcome.status, outcome.err.empty() ? 0 : 2);
    return outcome.err;
  };
  const std::string rest =
      " processes were started together, without --comm; expected --comm mpi, or --comm none if each of them is to "
      "train alone\n";
  EXPECT_EQ(said("OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0"), "windrow: 2" + rest);
  EXPECT_EQ(said("SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=0"), "windrow: 4" + rest);
  EXPECT_EQ(said("OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1"), "windrow: rank 1: 2" + rest);
  EXPECT_EQ(said("OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1", "--comm none"), "");
  EXPECT_EQ(said("OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0"), "");
  EXPECT_EQ(said("SLURM_NTASKS=4 SLURM_PROCID=0"), "");  // as in a script of sbatch
}

TEST_F(MemberPrograms, ReportTheGroup) {
  const std::string report = (folder / "report").string();
  EXPECT_EQ(run(train("--batch 50 --devices cpu:0,cpu:1 --report '" + report + "'")).err, "");
  const std::string page = read_file(folder / "report" / "report.html");
  expect_has_all(page, {"<td>2 devices of one process: cpu:0,cpu:1; gradients are summed by the host</td>",
                        "<td>members</td>", "<td>time in collectives</td>", "<th>collectives</th>"});
  EXPECT_EQ(run(train("--batch 50 --report '" + report + "'")).err, "");
  expect_lacks(read_file(folder / "report" / "report.html"), "<th>collectives</th>");
}

#ifdef WINDROW_WITH_MPI
TEST_F(MemberPrograms, OfTwoProcessesGiveTheBitsOfTwoDevices) {
  const Outcome processes = run_processes(2, train("--comm mpi"));
  EXPECT_EQ(processes.status, 0) << processes.err;
  const std::vector<std::string> epochs = epochs_of(processes.out);
  ASSERT_EQ(epochs.size(), 2u) << processes.out << processes.err;
  expect_has(processes.out, "\n2 processes; gradients are summed by MPI\n\n");
  EXPECT_EQ(epochs, epochs_of(run(train("--devices cpu:0,cpu:1")).out));
  const Outcome sharded = run_processes(2, train("--comm mpi --sharded --save-every 2 --save " + in("run")));
  EXPECT_EQ(sharded.status, 0) << sharded.err;
  EXPECT_EQ(epochs, epochs_of(sharded.out)) << sharded.err;
}

TEST_F(MemberPrograms, OfTwoProcessesWithTwoDevicesEachGiveTheBitsOfFourDevices) {
  const std::string checkpoint = "000000000026.safetensors";
  const std::string two = train("--comm mpi --batch 16 --devices cpu:0,cpu:1");
  const Outcome nested = run_processes(2, two + " --save " + in("nested"));
  EXPECT_EQ(nested.status, 0) << nested.err;
  expect_has(nested.out,
             "\n4 devices, 2 in each of 2 processes: cpu:0,cpu:1; gradients are summed by MPI between "
             "processes, and within each by the host\n");
  const Outcome four = run(train("--batch 16 --devices cpu:0,cpu:1,cpu:2,cpu:3 --save " + in("four")));
  const std::vector<std::string> epochs = epochs_of(four.out);
  ASSERT_EQ(epochs.size(), 2u) << four.out << four.err;
  EXPECT_EQ(epochs_of(nested.out), epochs);
  const std::string bits = read_file(folder / "four" / checkpoint);
  EXPECT_NE(bits, "");
  EXPECT_TRUE(read_file(folder / "nested" / checkpoint) == bits);
  EXPECT_EQ(epochs_of(run_processes(2, two + " --workers 1 --policy per_device").out), epochs);
}

// The losses that perf/peers/torch_ddp.py --layers 3 --width 8 --batch 4 --steps 20 prints.
TEST_F(MemberPrograms, ThatAreMeasuredTakeTheStepsOfPyTorch) {
  const Outcome outcome =
      run_processes(2,
                    "windrow-perf comm --role perceptron --layers 3 --width 8 --batch 4 --steps 20 --repetitions 1 "
                    "--json");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 1) << outcome.out;
  EXPECT_EQ(field(outcome.out, "processes"), 2);
  EXPECT_NEAR(field(outcome.out, "loss_first"), 1.5943745, 1e-5);
  EXPECT_NEAR(field(outcome.out, "loss_last"), 1.0279325, 1e-5);
  const double step = field(outcome.out, "step_ms"), computation = field(outcome.out, "computation_ms"),
               communication = field(outcome.out, "communication_ms");
  EXPECT_GT(std::min({step, computation, communication}), 0);
  EXPECT_NEAR(field(outcome.out, "hidden"), 1 - (step - computation) / communication,
              1e-4 * (1 + (step + computation) / communication));  // of six printed digits
}

TEST_F(MemberPrograms, OfSeveralProcessesRefuseInOneLine) {
  const auto lines_of_windrow = [](const std::string& text) {
    std::vector<std::string> lines = lines_of({text, "", 0});
    std::erase_if(lines, [](const std::string& line) { return !line.starts_with("windrow: "); });
    return lines;
  };
  using Lines = std::vector<std::string>;
  const auto refusals = [&](const Outcome& outcome) {
    EXPECT_NE(outcome.status, 0);
    return lines_of_windrow(outcome.err);
  };
  EXPECT_EQ(refusals(run_processes(3, train_on("--data /tmp", "--comm mpi"))),
            Lines{"windrow: /tmp: no train.txt; expected the training set under such a name, or another file by "
                  "--train"});
  const auto refused = [&](const std::string& more) {
    return refusals(run_processes(2, train("--devices cpu:0,cpu:1 " + more)));
  };
  EXPECT_EQ(refused("--comm mpi --sharded"),
            Lines{"windrow: --devices, --comm and --sharded; expected only two of them"});
  EXPECT_EQ(refused("--comm mpi --compress bfloat16"),
            Lines{"windrow: --devices, --comm and --compress; expected only two of them"});
  EXPECT_EQ(refused("--comm nccl"),
            Lines{"windrow: --devices and --comm nccl; expected --comm mpi, or --device of each "
                  "process instead of --devices"});
  // mpirun -n 1 FIRST : -n 1 SECOND, at which mpirun 5.0.7 crashes.
  const auto lines_of_two = [&](const std::string& first, const std::string& second) {
    std::ofstream(folder / "either") << "if [ $OMPI_COMM_WORLD_RANK = 0 ]; then " << first << "; else " << second
                                     << "; fi\n";
    return refusals(run_mpi("-n 2 sh " + in("either")));
  };
  const auto unequal = [&](const std::string& first, const std::string& second) {
    return lines_of_two("exec '" WINDROW_BIN "'/" + train(first), "exec '" WINDROW_BIN "'/" + train(second));
  };
  EXPECT_EQ(unequal("--comm mpi --devices cpu:0", "--comm mpi --devices cpu:0,cpu:1"),
            Lines{"windrow: --devices: rank 0 has 1, but rank 1 has 2; expected equally many"});
  EXPECT_EQ(unequal("--comm mpi", "--comm mpi --devices cpu:0,cpu:1"),
            Lines{"windrow: --devices: rank 0 has none, but rank 1 has 2; expected equally many"});
  EXPECT_EQ(unequal("--comm nccl", "--comm mpi"),
            Lines{"windrow: --comm: rank 0 has nccl, but rank 1 has mpi; expected the same"});
  EXPECT_EQ(unequal("--comm mpi", "--comm mpi --rate 0.5"),
            Lines{"windrow: rank 1 has another --rate than rank 0; expected the same"});
  EXPECT_EQ(unequal("--comm mpi", ""),
            Lines{"windrow: rank 1: 2 processes were started together, without --comm; expected --comm mpi, or --comm "
                  "none if each of them is to train alone"});
  // What fails before MPI has started.
  EXPECT_EQ(lines_of_windrow(run_processes(3, train("--comm mpi --trace /nonexistent/x")).err).size(), 1u);
  const Lines no_plugin =
      lines_of_windrow(run_mpi("-x WINDROW_MPI_PLUGIN=/nonexistent -n 3 '" WINDROW_BIN "'/" + train("--comm mpi")).err);
  ASSERT_EQ(no_plugin.size(), 1u);
  EXPECT_FALSE(no_plugin[0].starts_with("windrow: rank")) << no_plugin[0];
  // An error of one process names it, if it is not the first one.
  const std::string missing = "--comm mpi --save '" + (folder / "none" / "run").string() + "'";
  EXPECT_EQ(unequal("--comm mpi", missing), Lines{"windrow: rank 1 has another --save than rank 0; expected the same"});
  // The same sizes, but another word or another label.
  const Lines other_data = {"windrow: rank 1 has other data than rank 0; expected the same samples in the same order"};
  for (const std::string tree : {"(1 (0 a) (2 c))", "(1 (0 a) (3 b))"}) {
    for (const auto& [name, last] : {std::pair<std::string, std::string>{"one", "(1 (0 a) (2 b))"}, {"other", tree}}) {
      std::filesystem::create_directories(folder / name / "data");
      for (const char* const file : {"train.txt", "dev.txt"}) {
        std::ofstream(folder / name / "data" / file) << "(3 (1 b) (4 c))\n(1 (0 a) (2 b))\n" << last << '\n';
      }
    }
    const auto in = [&](const std::string& name) {
      return "cd '" + (folder / name).string() + "' && exec '" WINDROW_BIN "'/" + train_on("--data data", "--comm mpi");
    };
    EXPECT_EQ(lines_of_two(in("one"), in("other")), other_data);
  }
  const std::string there = "--comm mpi --device cuda:9";
  const Lines no_device = unequal("--comm mpi", there);
  ASSERT_EQ(no_device.size(), 1u);
  EXPECT_TRUE(no_device[0].starts_with("windrow: rank 1: ")) << no_device[0];
  EXPECT_EQ(lines_of_windrow(run_processes(2, train(there)).err).size(), 1u);
  // All processes fail by themselves, at about the same time.
  const Lines not_finite = lines_of_windrow(run_processes(3, train("--comm mpi --rate 1e38")).err);
  ASSERT_EQ(not_finite.size(), 1u);
  expect_has(not_finite[0], "is not finite");
}
#endif

}  // namespace
}  // namespace windrow::testing
