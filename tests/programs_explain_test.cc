// windrow explain.
#include <regex>

#include "tests/programs.h"

namespace windrow::testing {
namespace {

using Explain = Programs;

TEST_F(Explain, SaysWhatMakesBatchesAndWhereTheTimeGoes) {
  const Outcome outcome =
      run("windrow explain tree-lstm --samples 64 --batch 32 --hidden 16 --workers 2 --seconds 0.01");
  EXPECT_EQ(outcome.err, "");
  const std::string number = "[0-9]+\\.[0-9]";
  const std::string text =
      std::regex_replace(std::regex_replace(outcome.out, std::regex(number), "N"), std::regex(" +"), " ");
  for (const char* const part :
       {"tree-lstm, generated data: 2 minibatches of 32 trees\nper minibatch: N vertices in N batches, N vertices per "
        "batch\n\nvertex type vertices batches vertices per batch share of work\ntree_lstm, 2 children N N N N "
        "%\ntree_lstm, "
        "no children, with word N N N N %\n\nwhat makes N batches of them\n N vertices of different types",
        "\ncritical path: N of N vertices, with N % of the work, so at most ",
        "\ntraining, 2 workers share of time GFLOP/s per worker peak share of peak\nproducts N % N "}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

TEST_F(Explain, GivesCountsThatAddUpAsJson) {
  for (const std::string flags : {"listops --schedule agenda", "bilstm-char --batch 8"}) {
    const auto lines =
        lines_of(run("windrow explain " + flags + " --samples 40 --hidden 8 --workers 1 --seconds 0.01 --json"));
    ASSERT_EQ(lines.size(), 1u);
    const std::string causes = lines[0].substr(lines[0].find("\"causes\""));
    double sum = 0;
    for (const char* const cause : {"types", "dependencies", "schedule", "groups"}) sum += field(causes, cause);
    EXPECT_EQ(sum, field(lines[0], "batches")) << lines[0];
    const double share = field(lines[0], "share_of_work");
    EXPECT_TRUE(0 < share && share < 1) << lines[0];
    double time = 0;
    const std::string shares = lines[0].substr(lines[0].find("\"shares_of_time\""));
    for (const char* const kind : {"products", "arithmetic", "moves", "rest"}) time += field(shares, kind);
    EXPECT_NEAR(time, 1, 1e-6) << lines[0];
    EXPECT_GT(field(lines[0], "peak_per_worker"), 0);
  }
}

TEST_F(Explain, RefusesAModelWhoseGraphsAreNotKnown) {
  const Outcome outcome = run("windrow explain parser");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_TRUE(outcome.err.starts_with("windrow: model: 'parser'; expected one of tree-lstm, ")) << outcome.err;
}

}  // namespace
}  // namespace windrow::testing
