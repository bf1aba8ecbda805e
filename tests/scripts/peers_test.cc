// scripts/peers, with programs in the place of Windrow and its peers that say what the tests choose.
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

}  // namespace
}  // namespace windrow::testing
