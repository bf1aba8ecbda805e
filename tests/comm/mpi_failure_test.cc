// Processes of a group that die, stop, are late or give up: the others say so, in time, and end.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <string>

namespace windrow::testing {
namespace {

/// What mpirun and three processes print. Whatever happens, they end within 60 seconds.
std::string output_of(const std::string& how) {
  const std::string command = "timeout -k 5 60 " WINDROW_MPIRUN
                              " --allow-run-as-root --oversubscribe --enable-recovery -n 3 " WINDROW_MPI_RANK " " +
                              how + " 2>&1";
  FILE* const pipe = ::popen(command.c_str(), "r");
  std::string text;
  std::array<char, 4096> part;
  while (const std::size_t n = std::fread(part.data(), 1, part.size(), pipe)) text.append(part.data(), n);
  const int status = ::pclose(pipe);
  EXPECT_NE(WEXITSTATUS(status), 124) << "timed out\n" << text;
  return text;
}

/// Of a rank, whether it tells the error or leaves that to another one; empty if it printed none.
std::string line_of(int rank, const std::string& text) {
  std::size_t at = text.find("rank " + std::to_string(rank) + ": ");
  if (at == text.npos) at = text.find("rank " + std::to_string(rank) + " leaves it to another: ");
  return at == text.npos ? "" : text.substr(at, text.find('\n', at) - at);
}

struct Failing {
  const char* how;
  const char* said;  // by the others
};
class MpiFailure : public ::testing::TestWithParam<Failing> {};
INSTANTIATE_TEST_SUITE_P(Of, MpiFailure,
                         ::testing::Values(Failing{"kill", "rank 2 did not answer"},
                                           Failing{"stop", "rank 2 did not answer"},
                                           Failing{"slow", "missing at rank 2 (last: call 2)"},
                                           Failing{"abort", "rank 2 gives up"},
                                           Failing{"leave", "rank 2 has ended without this call"},
                                           Failing{"last", "rank 2 has ended without this call"}),
                         [](const auto& test) { return std::string(test.param.how); });

TEST(MpiFailures, AreToldByTheLowestRankThatIsLeft) {
  for (const std::string how : {"kill", "stop", "stuck"}) {
    for (const int bad : {0, 1, 2}) {
      const std::string text = output_of(how + " " + std::to_string(bad));
      const int first = bad == 0 ? 1 : 0, second = bad == 2 ? 1 : 2;
      EXPECT_NE(text.find("rank " + std::to_string(first) + ": "), text.npos) << text;
      EXPECT_NE(text.find("rank " + std::to_string(second) + " leaves it to another: "), text.npos) << text;
    }
  }
}

TEST_P(MpiFailure, IsNamedByAllOthersInTime) {
  const std::string text = output_of(GetParam().how);
  for (const int rank : {0, 1}) {
    const std::string line = line_of(rank, text);
    EXPECT_NE(line.find("all_reduce 'gradients'"), line.npos) << text;
    EXPECT_NE(line.find(GetParam().said), line.npos) << text;
  }
  if (std::string(GetParam().how) == "last") {
    EXPECT_EQ(line_of(2, text), "rank 2: ") << text;
  }
}

TEST(MpiFailures, LeaveTheMemoryOfTensorsToWhatIsUnderWay) {
  const std::string text = output_of("late");
  for (const int rank : {0, 1, 2}) EXPECT_EQ(line_of(rank, text), "rank " + std::to_string(rank) + ": ") << text;
}

}  // namespace
}  // namespace windrow::testing
