// scripts/peers, with programs in the place of Windrow and its peers that say what the tests choose.
#include "scripts.h"

namespace windrow::testing {
namespace {

class PeersScript : public Scripts {
 protected:
  PeersScript() {
    for (const char* part : {"train.txt", "dev.txt"}) std::ofstream(folder / part) << "(3 (2 It) (4 works))\n";
    make("windrow", "");
    make_peers("9", "9");
  }
  void make_peers(const std::string& flops, const std::string& flops_of_dynet) const {
    make("windrow-perf", R"({"units_per_s_median": 300, "flops_per_unit": )" + flops + "}");
    make("dynet", R"({"units_per_s": 200, "flops_per_unit": )" + flops_of_dynet + "}");
  }
  std::string call() const { return "peers --repetitions 1 --bin " + in("") + "--out " + in("peers.md"); }

  const std::string data_ = "--data " + in(""), dynet_ = "--dynet " + in("dynet");
};

TEST_F(PeersScript, EndsWithOneLineAndStatus2WhereArgumentsAreWrong) {
  expect_script_refusals(
      call(), {{dynet_, "no --data; expected a folder with train.txt and dev.txt"},
               {dynet_ + "--data /dev", "--data /dev has no train.txt; expected a folder of trees"},
               {data_, "no peer; expected --dynet PROGRAM, --python PYTHON or both"},
               {data_ + "--dynet /dev/null", "no program /dev/null; expected an executable, see scripts/peers --help"},
               {data_ + dynet_ + "--repetitions 0", "--repetitions 0; expected 1 or more"},
               {data_ + dynet_ + "--repetitions many", "argument --repetitions: invalid int value: 'many'"},
               {data_ + dynet_ + "--out /dev", "cannot write /dev: Is a directory"},
               {data_ + dynet_ + "--fast", "unrecognized arguments: --fast"}});
}

TEST_F(PeersScript, WritesThroughputAndRatios) {
  make_peers("9.00001", "9");
  const Outcome outcome = run_script(call() + data_ + dynet_);
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  expect_in("peers.md", {"| training | 256 | 64 | 300 | 200 | 1.50 x (1.50 to 1.50) |\n",
                         " windrow-perf train --model tree-lstm --data DIR --hidden 32 --embedding 32 --batch 64 "});
}

TEST_F(PeersScript, RefusesToCompareDifferentWorkAndSaysWhichPeerFails) {
  const auto last_line = [&] {
    const std::string text = run_script(call() + data_ + dynet_).err;
    return text.substr(text.rfind('\n', text.size() - 2) + 1);
  };
  make_peers("9", "10");
  EXPECT_TRUE(last_line().starts_with("peers: different work per tree at "));
  make_peers("9", "9");
  make("dynet", "no memory' >&2; exit 3; echo '");
  EXPECT_NE(last_line().find(" failed: no memory"), std::string::npos);
  make("dynet", "trees");
  EXPECT_NE(last_line().find("printed no such records; expected "), std::string::npos);
}

// scripts/ddp, with programs in the place of mpirun and PyTorch that say what the tests choose.

class DdpScript : public Scripts {
 protected:
  DdpScript() { make("windrow-perf", ""); }

  static std::string record(const std::string& step, const std::string& loss) {
    return R"({"step_ms": )" + step + R"(, "computation_ms": 10, "communication_ms": 8, "hidden": 0.75, )" +
           R"("loss_first": 60, "loss_last": )" + loss + "}";
  }
  std::string call() const {
    return "ddp --repetitions 2 --bin " + in("") + "--out " + in("ddp.md") + "--mpirun " + in("mpirun");
  }
};

TEST_F(DdpScript, WritesTimesRatiosAndCommands) {
  make("mpirun", record("12", "35.0001"));
  make("python", record("18", "35"));
  const Outcome outcome = run_script(call() + "--widths 32 --python " + in("python"));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  expect_in("ddp.md", {"| 32 | Windrow | 12.00 | 10.00 | 8.00 | 75 % (75 to 75) |\n",
                       "| 32 | PyTorch | 18.00 | 10.00 | 8.00 | 75 % (75 to 75) |\n",
                       "| 32 | PyTorch, 4 MiB | 1.50 x (1.50 to 1.50) | 1.00 x (1.00 to 1.00) |",
                       " -n 2 windrow-perf comm --role perceptron --width 32 --json`\n",
                       "python3 perf/peers/torch_ddp.py --processes 2 --bucket 25 --width 32`\n"});
  EXPECT_EQ(std::ranges::count(read_file(folder / "python.log"), '\n'), 4);
}

TEST_F(DdpScript, EndsWithOneLineAndStatus2) {
  make("mpirun", record("12", "35.0"));
  make("python", record("18", "35.1"));
  make("mute", "");
  const std::string python = "--python " + in("python");
  expect_script_refusals(
      call(),
      {{"", "no --python; expected a Python interpreter with torch"},
       {"--python /dev/null", "no program /dev/null; expected an executable, see scripts/ddp --help"},
       {python + "--processes 1", "--processes 1; expected 2 or more"},
       {python + "--repetitions 0", "--repetitions 0; expected 1 or more"},
       {python + "--widths 8,x", "--widths 8,x; expected whole numbers, 1 or more, such as 256,512"},
       {python + "--out /dev", "cannot write /dev: Is a directory"},
       {python + "--widths 32",
        "different models at width 32: loss_last is {'Windrow': 35.0, 'PyTorch': 35.1, 'PyTorch, 4 MiB': 35.1}; "
        "expected the same"},
       {"--widths 32 --python " + in("mute"),
        "OMP_NUM_THREADS=1 python3 perf/peers/torch_ddp.py --processes 2 --bucket 25 --width 32 printed no such "
        "record; expected one with step_ms, computation_ms, communication_ms, hidden, loss_first, loss_last"}});
}

// scripts/images, with programs in the place of windrow-perf and PyTorch that say what the tests choose.

class ImagesScript : public Scripts {
 protected:
  std::string call() const { return "images --repetitions 2 --bin " + in("") + "--out " + in("images.md"); }
};

TEST_F(ImagesScript, WritesThroughputRatiosAndCommands) {
  make("windrow-perf", R"({"units_per_s_median": 3000})");
  make("python", R"({"units_per_s_median": 2000})");
  const Outcome outcome = run_script(call() + "--batches 64 --workers 2 --python " + in("python"));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  expect_in("images.md",
            {"| mlp | 64 | 2 | 3000 | 3000 | 2000 | 1.00 x (1.00 to 1.00) | 1.50 x (1.50 to 1.50) |\n",
             "`windrow-perf train --model cnn --batch 64 --samples 2048 --passes 3 --workers 2 --json`\n",
             " --graph off --json`\n",
             "python3 perf/peers/torch_images.py --model mlp --batch 64 --samples 8192 --passes 3 --threads 2`\n"});
  EXPECT_EQ(std::ranges::count(read_file(folder / "python.log"), '\n'), 4);
}

TEST_F(ImagesScript, EndsWithOneLineAndStatus2) {
  make("windrow-perf", "");
  make("python", "");
  const std::string python = "--python " + in("python");
  expect_script_refusals(
      call(), {{"", "no --python; expected a Python interpreter with torch"},
               {"--python /dev/null", "no program /dev/null; expected an executable, see scripts/images --help"},
               {python + "--repetitions 0", "--repetitions 0; expected 1 or more"},
               {python + "--batches 8,x", "--batches 8,x; expected whole numbers, 1 or more, such as 1,2"},
               {python + "--out /dev", "cannot write /dev: Is a directory"},
               {python,
                "windrow-perf train --model mlp --batch 16 --samples 8192 --passes 3 --workers 1 --json printed no "
                "such record; expected one with units_per_s_median"}});
}

}  // namespace
}  // namespace windrow::testing
