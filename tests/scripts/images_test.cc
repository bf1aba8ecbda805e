// scripts/images, with programs in the place of windrow-perf and PyTorch that say what the tests choose.
#include <algorithm>

#include "tests/programs/programs.h"

namespace windrow::testing {
namespace {

class ImagesScript : public Programs {
 protected:
  /// A program that prints such a record, and its arguments to a file.
  void make(const std::string& name, const std::string& prints) const {
    std::ofstream(folder / name) << "#!/bin/sh\necho \"$*\" >> " << at(name + ".log") << "\necho '" << prints << "'\n";
    std::filesystem::permissions(folder / name, std::filesystem::perms::owner_all);
  }
  std::string at(const std::string& name) const { return "'" + (folder / name).string() + "' "; }
  Outcome compare(const std::string& flags) const {
    return run_script("images --repetitions 2 --bin " + at("") + "--out " + at("images.md") + flags);
  }
};

TEST_F(ImagesScript, WritesThroughputRatiosAndCommands) {
  make("windrow-perf", R"({"units_per_s_median": 3000})");
  make("python", R"({"units_per_s_median": 2000})");
  const Outcome outcome = compare("--batches 64 --workers 2 --python " + at("python"));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const std::string text = read_file(folder / "images.md");
  for (const char* line : {"| mlp | 64 | 2 | 3000 | 3000 | 2000 | 1.00 x (1.00 to 1.00) | 1.50 x (1.50 to 1.50) |\n",
                           "`windrow-perf train --model cnn --batch 64 --samples 2048 --passes 3 --workers 2 --json`\n",
                           " --graph off --json`\n",
                           "python3 perf/peers/torch_images.py --model mlp --batch 64 --samples 8192 --passes 3 "
                           "--threads 2`\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
  EXPECT_EQ(text.find(folder.string()), std::string::npos) << text;
  const std::string called = read_file(folder / "python.log");
  EXPECT_EQ(std::count(called.begin(), called.end(), '\n'), 4) << called;
}

TEST_F(ImagesScript, EndsWithOneLineAndStatus2) {
  make("windrow-perf", "");
  make("python", "");
  const std::string python = "--python " + at("python");
  const std::pair<std::string, std::string> wrong[] = {
      {"", "no --python; expected a Python interpreter with torch"},
      {"--python /dev/null", "no program /dev/null; expected an executable, see scripts/images --help"},
      {python + "--repetitions 0", "--repetitions 0; expected 1 or more"},
      {python + "--batches 8,x", "--batches 8,x; expected whole numbers, 1 or more, such as 1,2"},
      {python + "--out /dev", "cannot write /dev: Is a directory"},
      {python,
       "windrow-perf train --model mlp --batch 16 --samples 8192 --passes 3 --workers 1 --json printed no such "
       "record; expected one with units_per_s_median"},
  };
  for (const auto& [flags, says] : wrong) {
    const Outcome outcome = compare(flags);
    EXPECT_TRUE(outcome.err.ends_with("images: " + says + "\n")) << outcome.err << says;
    EXPECT_EQ(outcome.status, 2);
  }
}

}  // namespace
}  // namespace windrow::testing
