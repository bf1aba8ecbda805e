// scripts/measure, with a program in the place of windrow-perf.
#include "tests/scripts/scripts.h"

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

}  // namespace
}  // namespace windrow::testing
