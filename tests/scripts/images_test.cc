// scripts/images, with programs in the place of windrow-perf and PyTorch that say what the tests choose.
#include "tests/scripts/scripts.h"

namespace windrow::testing {
namespace {

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
