// scripts/peers, with programs in the place of Windrow and its peers that say what the tests choose.
#include "tests/programs/programs.h"

namespace windrow::testing {
namespace {

class PeersScript : public Programs {
 protected:
  PeersScript() {
    for (const char* part : {"train.txt", "dev.txt"}) std::ofstream(folder / part) << "(3 (2 It) (4 works))\n";
    make("windrow", "");
  }

  /// A program that prints such records.
  void make(const std::string& name, const std::string& prints) const {
    std::ofstream(folder / name) << "#!/bin/sh\necho '" << prints << "'\n";
    std::filesystem::permissions(folder / name, std::filesystem::perms::owner_all);
  }
  void make_windrow(const std::string& flops) const {
    make("windrow-perf", R"({"units_per_s_median": 300, "flops_per_unit": )" + flops + "}");
  }
  void make_dynet(const std::string& flops) const {
    make("dynet", R"({"units_per_s": 200, "flops_per_unit": )" + flops + "}");
  }

  std::string in(const std::string& name) const { return "'" + (folder / name).string() + "' "; }
  Outcome compare(const std::string& flags) const {
    return run_script("peers --repetitions 1 --bin " + in("") + "--out " + in("peers.md") + flags);
  }
  /// What it says last, behind the commands that it tells of.
  static std::string last_line(const std::string& text) {
    const std::size_t end = text.rfind('\n');
    return end == std::string::npos ? text : text.substr(text.rfind('\n', end - 1) + 1, end);
  }
};

TEST_F(PeersScript, EndsWithOneLineAndStatus2WhereArgumentsAreWrong) {
  make_windrow("9");
  make_dynet("9");
  const std::string data = "--data " + in(""), dynet = "--dynet " + in("dynet");
  const std::pair<std::string, std::string> wrong[] = {
      {dynet, "no --data; expected a folder with train.txt and dev.txt"},
      {dynet + "--data /dev", "--data /dev has no train.txt; expected a folder of trees"},
      {data, "no peer; expected --dynet PROGRAM, --python PYTHON or both"},
      {data + "--dynet /dev/null", "no program /dev/null; expected an executable, see scripts/peers --help"},
      {data + dynet + "--repetitions 0", "--repetitions 0; expected 1 or more"},
      {data + dynet + "--repetitions many", "argument --repetitions: invalid int value: 'many'"},
      {data + dynet + "--out /dev", "cannot write /dev: Is a directory"},
      {data + dynet + "--fast", "unrecognized arguments: --fast"},
  };
  for (const auto& [flags, says] : wrong) {
    const Outcome outcome = compare(flags);
    EXPECT_EQ(outcome.err, "peers: " + says + "\n");
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(outcome.status, 2);
  }
}

TEST_F(PeersScript, WritesThroughputAndRatios) {
  make_windrow("9.00001");
  make_dynet("9");
  const Outcome outcome = compare("--data " + in("") + "--dynet " + in("dynet"));
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const std::string text = read_file(folder / "peers.md");
  EXPECT_NE(text.find("| training | 256 | 64 | 300 | 200 | 1.50 x (1.50 to 1.50) |\n"), std::string::npos) << text;
  EXPECT_NE(text.find(" windrow-perf train --model tree-lstm --data DIR --hidden 32 --embedding 32 --batch 64 "),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find(folder.string()), std::string::npos) << text;
}

TEST_F(PeersScript, RefusesToCompareDifferentWork) {
  make_windrow("9");
  make_dynet("10");
  const Outcome outcome = compare("--data " + in("") + "--dynet " + in("dynet"));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_TRUE(last_line(outcome.err).starts_with("peers: different work per tree at ")) << outcome.err;
}

TEST_F(PeersScript, SaysWhichPeerFails) {
  make_windrow("9");
  make("dynet", "no memory' >&2; exit 3; echo '");
  const Outcome outcome = compare("--data " + in("") + "--dynet " + in("dynet"));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(last_line(outcome.err).find(" failed: no memory"), std::string::npos) << outcome.err;
  make("dynet", "trees");
  const Outcome other = compare("--data " + in("") + "--dynet " + in("dynet"));
  EXPECT_EQ(other.status, 2);
  EXPECT_NE(last_line(other.err).find("printed no such records; expected "), std::string::npos) << other.err;
}

}  // namespace
}  // namespace windrow::testing
