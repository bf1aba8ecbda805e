// scripts/ddp, with programs in the place of mpirun and PyTorch that say what the tests choose.
#include "tests/scripts/scripts.h"

namespace windrow::testing {
namespace {

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

}  // namespace
}  // namespace windrow::testing
