// scripts/measure, with a program in the place of windrow-perf.
#include "scripts.h"
#include "tests/programs/programs.h"

namespace windrow::testing {
namespace {

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

// scripts/timeline, with a trace of two devices.

class TimelineScript : public Scripts {
 protected:
  /// Three minibatches of two devices.
  TimelineScript() {
    std::ofstream trace(folder / "run.json");
    trace << R"({"traceEvents": [{"ph": "M", "name": "thread_name", "tid": 3, "args": {"name": "async 1"}})";
    const auto event = [&](const std::string& name, const std::string& lane, int thread, int begin, int length) {
      trace << R"(, {"ph": "X", "cat": "op", "name": ")" << name << R"(", "tid": )" << thread << R"(, "ts": )" << begin
            << R"(, "dur": )" << length << R"(, "args": {"op": ")" << ++ops_ << R"(", "lane": ")" << lane << R"("}})";
    };
    for (int step = 0; step < 3; ++step) {
      for (const std::string lane : {"cpu:0", "cpu:1"}) {
        const int begin = 1000 * step + (lane == "cpu:1" ? 50 : 0);
        event("minibatch memory", lane, 1, begin, 10);
        event("forward", lane, 1, begin + 10, 100 + step);
        event("matmul_tn", lane, 2, begin + 110 + step, 200);
        event("gradients", lane, 3, begin + 150, 400);
        trace << R"(, {"ph": "X", "cat": "call", "name": "gradients", "tid": 1, "ts": )" << begin + 500
              << R"(, "dur": 50, "args": {"op": ")" << ops_ << "\"}}";
        event("sgd_step", lane, 1, begin + 560, 30);
      }
    }
    trace << "]}";
  }

 private:
  int ops_ = 0;
};

TEST_F(TimelineScript, DrawsWhatEachDeviceComputesAndWhenItsGradientsAreSummed) {
  const Outcome outcome = run_script("timeline " + in("run.json") + "--first 1 --steps 1");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const std::string text = read_file(folder / "run.svg");
  for (const char* part :
       {">cpu:0<", ">cpu:1<", ">its sums<", ">step 1<", ">forward, 0.101 ms<", ">matmul_tn, 0.200 ms<",
        ">gradients, 0.400 ms<", ">gradients, 0.050 ms<", ">sgd_step, 0.030 ms<", ">hands in or adds up<"}) {
    expect_has(text, part);
  }
  for (const char* part : {">step 0<", ">step 2<", ">forward, 0.100 ms<", ">forward, 0.102 ms<", ">backward<"}) {
    expect_lacks(text, part);
  }
}

TEST_F(TimelineScript, EndsWithOneLineAndStatus2WhereArgumentsAreWrong) {
  std::ofstream(folder / "other.json") << R"({"traceEvents": 7})";
  std::ofstream(folder / "alone.json") << R"({"traceEvents": []})";
  const std::string run = (folder / "run.json").string();
  expect_script_refusals(
      "timeline",
      {{"", "the following arguments are required: trace"},
       {in("none.json"), "cannot read " + (folder / "none.json").string() + ": No such file or directory"},
       {in("other.json"), (folder / "other.json").string() +
                              " is no trace of an engine; expected a file that WINDROW_TRACE=FILE has written"},
       {in("alone.json"),
        (folder / "alone.json").string() + " has no sums of gradients; expected a trace of a data-parallel training"},
       {in("run.json") + "--steps 3", "--steps 3; expected 1 to 2, the whole steps of " + run},
       {in("run.json") + "--first 1", "--first 1; expected 0 to 0, so that 2 steps follow"},
       {in("run.json") + "--out /dev", "cannot write /dev: Is a directory"}});
}

}  // namespace
}  // namespace windrow::testing
