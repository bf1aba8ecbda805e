// The scripts, most of them with programs in the place of those that they run, which say what the tests choose.
#include "tests/scripts/scripts.h"

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

// scripts/measure, with a program in the place of windrow-perf.

class MeasureScript : public Scripts {
 protected:
  std::string call(const std::string& page) const {
    return "measure " + page + " --program " + in("windrow-perf") + "--out " + in("page.md");
  }
};

TEST_F(MeasureScript, WritesThePageOfATable) {
  make("windrow-perf", "# A title\n\nAbout it.\n\n| a |\n|---|\n| 1 |");
  const Outcome outcome = run_script(call("hand") + "--repetitions 3 -- --hidden 8");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  expect_in("page.md", {"# A title\n\n`scripts/measure hand` on ",
                        "\n\n```\nwindrow-perf schedules --manual --batch 1,2,4,8,16,32,64 --hidden 8 --repetitions 3\n"
                        "```\n\nAbout it.\n\n| a |\n|---|\n| 1 |\n"});
}

TEST_F(MeasureScript, WritesThePageOfSeveralMeasurements) {
  make("windrow-perf", R"({"construction_ns_per_vertex": 20, "schedule_ns_per_vertex": 10, "vertices_per_unit": 50, )"
                       R"("units_per_s_median": 1000})");
  const Outcome outcome = run_script(call("overhead") + "--repetitions 2");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  expect_in("page.md", {"`windrow-perf train --model tree-fc --leaves 32 --samples 64 --hidden 256 --batch 64 ",
                        "| tree-lstm | - | 16 | 0.016 | 0.008 | 16.00 | 0.10 % | 0.05 % |\n"});
}

TEST_F(MeasureScript, EndsWithOneLineAndStatus2) {
  make("windrow-perf", "# A title\n");
  expect_script_refusals(
      call("static"),
      {{"--repetitions 0", "--repetitions 0; expected 1 or more"},
       {"--out /dev", "cannot write /dev: Is a directory"},
       {"--program /dev/null", "no program /dev/null; expected a windrow-perf, which scripts/test builds"}});
}

// scripts/size, in a tree of few files.

class SizeScript : public Programs {
 protected:
  SizeScript() {
    std::filesystem::create_directories(folder / "scripts");
    std::filesystem::copy(std::filesystem::path(WINDROW_SOURCE_DIR) / "scripts/size", folder / "scripts/size");
    write("engine/include/windrow/engine/var.h", "// A variable.\n\nclass Var {\n  int value;\n};\n");
    write("engine/include/windrow/engine/internal/detail.h", "struct Detail {};\n");
    write("engine/src/var.cc", "/* Two\n   lines */\nint one;\n");
    write("docs/engine.md", "One line.\n");
  }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((folder / name).parent_path());
    std::ofstream(folder / name) << text;
  }
};

TEST_F(SizeScript, CountsCodeCommentsHeadersAndTypes) {
  const auto lines = lines_of(run_there("scripts/size"));
  const auto has = [&](const std::string& expression) {
    return std::any_of(lines.begin(), lines.end(),
                       [&](const std::string& line) { return std::regex_match(line, std::regex(expression)); });
  };
  EXPECT_TRUE(has(" +code +comments +largest folder +headers +types"));
  EXPECT_TRUE(has("engine +5 +3 +1 +1 +1"));
  EXPECT_TRUE(has("all rooms +5 +3 +1 +1 +1"));
  EXPECT_TRUE(has("docs/ +1"));
  EXPECT_FALSE(has("Warning.*"));
}

TEST_F(SizeScript, WarnsAboveALimit) {
  for (int i = 0; i < 24; ++i) write("engine/src/file" + std::to_string(i) + ".cc", "int x;\n");
  EXPECT_EQ(lines_of(run_there("scripts/size")).back(), "Warning: all rooms, largest folder: 25; the limit is 24");
}

TEST_F(SizeScript, RefusesSeveralRevisions) { EXPECT_EQ(run_there("scripts/size one two").status, 2); }

// scripts/gpu: bundles, and reports of results that the tests write.

class GpuScript : public Scripts {
 protected:
  void write(const std::string& name, const std::string& text) const { std::ofstream(folder / name) << text; }
};

TEST_F(GpuScript, EndsWithOneLineAndStatus2WhereArgumentsAreWrong) {
  std::filesystem::create_directory(folder / "empty");
  const std::pair<std::string, std::string> wrong[] = {
      {"--bundle " + in("new") + "--bin " + in("empty"), "expected a build with nvcc, which scripts/test makes\n"},
      {"--report " + in("empty"), "expected the results of a bundle's run\n"},
      {"--data " + in("empty"), "expected the folder of the treebank\n"},
      {"--bundle a --report b", "gpu: several of --bundle, --report and --host were given; expected one of them\n"},
      {"--budnle a", "gpu: unrecognized arguments: --budnle a\n"},
  };
  for (const auto& [arguments, expected] : wrong) {
    const Outcome outcome = run_script("gpu " + arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_EQ(outcome.out, "") << arguments;
    EXPECT_TRUE(outcome.err.starts_with("gpu: ") && outcome.err.ends_with(expected)) << outcome.err;
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "new"));
}

TEST_F(GpuScript, WritesAReport) {
  write("devices.txt",
        "device  architecture  memory  name\ncuda:0   9.0             79.2 GiB  NVIDIA H100 80GB HBM3\n");
  write("machine.txt", "2026-01-02\nabc1234\nNVIDIA H100 80GB HBM3, 580.1\n");
  write("steps.txt", "3 s, status 0: cuda_test \n");
  write("conformance.0.txt", "[==========] 9 tests\n[  PASSED  ] 9 tests.\n");
  write("conformance.1.txt",
        "[  FAILED  ] Some.Test (3 ms)\n[  PASSED  ] 1 test.\n[  FAILED  ] 1 test, listed below:\n"
        "[  FAILED  ] Some.Test\n\n 1 FAILED TEST\n");
  write("memcheck.txt", "========= ERROR SUMMARY: 0 errors\n");
  write(
      "peers.jsonl",
      R"({"model": "tree-lstm", "mode": "training", "tf32": true, "hidden": 256, "batch": 64, "unit": "trees", "units_per_s": 12345.67})"
      "\n"
      R"({"model": "tree-lstm", "mode": "training", "hidden": 256, "batch": 64, "unit": "trees", "units_per_s": 12345.67})");
  write("train.txt", "epoch 1\n");
  write(
      "results.jsonl",
      R"({"model": "tree-lstm", "mode": "training", "levels": "automatic", "precision": "tf32", "hidden": 256, "batch": 64, "unit": "trees", )"
      R"("units_per_s": 123456.7, "minibatch_ms": 0.51234, "device_ms": 0.4, "schedule_ms": 0.1, )"
      R"("calls_per_minibatch": 181.2, "traced_ms": 0.5, "idle_share": 0.2, "latency_ms": null})");
  const Outcome outcome = run_script("gpu --report " + in("") + "--out " + in("report.md"));
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.status, 0);
  expect_in(
      "report.md",
      {"# NVIDIA H100 80GB HBM3\n", "on 2026-01-02, commit abc1234; NVIDIA H100 80GB HBM3, 580.1.",
       "conformance: 10 tests passed, 1 failed Some.Test\n", "memcheck: ERROR SUMMARY: 0 errors\n",
       "synccheck: not run\n", "| tree-lstm | training | tf32 | 256 | 64 | trees | 12346 | 123457 | 10 |\n",
       "| tree-lstm | training | float32 | 256 | 64 | trees | 12346 | - | - |\n", "## Training\n\n```\nepoch 1\n```\n",
       "| tree-lstm | training | automatic | tf32 | 256 | 64 | trees | 123457 | 0.512 | 0.1 | 181 | 0.5 | 0.4 | 0.2 | "
       "- |\n"});
}

TEST_F(GpuScript, MeasuresTheHost) {
  std::ofstream train(folder / "train.txt");
  for (int i = 0; i < 512; ++i) train << "(3 (2 It) (4 works))\n(1 (2 It) (0 fails))\n";  // a minibatch of 1,024
  train.close();
  std::ofstream(folder / "dev.txt") << "(3 (2 It) (4 works))\n";
  const Outcome outcome = run_script("gpu --host --bin '" WINDROW_BIN "' --data " + in("") + "--out " + in("host.md"));
  EXPECT_EQ(outcome.err, "");
  EXPECT_EQ(outcome.status, 0);
  expect_in("host.md", {"`windrow-perf gpu --without-work --levels together --hidden 256 --data DIR --inference",
                        "\n| training | 1024 | "});
}

#ifdef WINDROW_FAKE_PLUGIN

/// There is no device.
TEST_F(GpuScript, MakesABundleThatSaysWhatIsMissing) {
  const Outcome made = run_script("gpu --bundle " + in("bundle") + "--bin '" + WINDROW_BIN + "'");
  EXPECT_EQ(made.err, "");
  EXPECT_EQ(made.status, 0);
  const Outcome again = run_script("gpu --bundle " + in("bundle") + "--bin '" + WINDROW_BIN + "'");
  EXPECT_EQ(again.status, 2);
  EXPECT_TRUE(again.err.ends_with(" is not empty; expected a new folder\n")) << again.err;
  if (std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "this machine has a driver";
  const Outcome ran = run_there("bundle/run --out " + in("results"));
  EXPECT_EQ(ran.status, 2);
  EXPECT_TRUE(
      ran.out.ends_with("CUDA cannot be used: no NVIDIA driver was found; expected one for CUDA 13.0 or later\n"))
      << ran.out;
}

#endif

}  // namespace
}  // namespace windrow::testing
