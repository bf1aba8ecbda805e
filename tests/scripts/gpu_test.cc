// scripts/gpu: bundles, and reports of results that the tests write.
#include "tests/scripts/scripts.h"

namespace windrow::testing {
namespace {

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
