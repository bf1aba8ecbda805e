// windrow explain.
#include <regex>

#include "tests/programs/programs.h"

namespace windrow::testing {
namespace {

using Explain = Programs;

TEST_F(Explain, SaysWhatMakesBatchesAndWhereTheTimeGoes) {
  const Outcome outcome =
      run("windrow explain tree-lstm --samples 64 --batch 32 --hidden 16 --workers 2 --seconds 0.01");
  EXPECT_EQ(outcome.err, "");
  const std::string number = "[0-9]+\\.[0-9]+";
  const std::string text =
      std::regex_replace(std::regex_replace(outcome.out, std::regex(number), "N"), std::regex(" +"), " ");
  for (const char* const part :
       {"tree-lstm, generated data: 2 minibatches of 32 trees\nper minibatch: N vertices in N batches, N vertices per "
        "batch\n\nvertex type vertices batches vertices per batch share of work\ntree_lstm, 2 children N N N N "
        "%\ntree_lstm, "
        "no children, with word N N N N %\n\nwhat makes N batches of them\n N vertices of different types",
        "\ncritical path: N of N vertices, with N % of the work, so at most ",
        "\ntraining, 2 workers ms per minibatch share of time achieved per worker machine share of it\nproducts N N "
        "% N GFLOP/s N N %\n matmul",
        "\n matmul N N % N GFLOP/s N N %\n", "\nother arithmetic N N % N GB/s N N %\n ", "\n mul N N % N GB/s N N %\n",
        "\nmoves N N % N GB/s N N %\n ", "\nrest N N % optimiser"}) {
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
    for (const char* const rates : {"\"achieved_per_worker\"", "\"machine_per_worker\""}) {
      const std::string by_kind = lines[0].substr(lines[0].find(rates));
      for (const char* const kind : {"products", "arithmetic", "moves"}) EXPECT_GT(field(by_kind, kind), 0) << rates;
    }
    const std::string op = lines[0].substr(lines[0].find("\"operators\""));
    EXPECT_NE(op.find("\"kind\": \"products\",\"ms_per_minibatch\""), std::string::npos) << op;
    EXPECT_NE(op.find("\"name\": \"matmul\""), std::string::npos) << op;
    EXPECT_GT(field(op, "share_of_time"), 0) << op;
    EXPECT_GT(field(op, "achieved_per_worker"), 0) << op;
  }
}

TEST_F(Explain, SaysOfAModelThatBuildsItsGraphsAsItRunsWhatItDid) {
  const std::string command =
      "windrow explain parser --samples 12 --batch 6 --hidden 8 --embedding 4 --scorer 4 --workers 1 --seconds 0.01";
  const Outcome outcome = run(command);
  EXPECT_EQ(outcome.err, "");
  EXPECT_TRUE(std::regex_search(outcome.out, std::regex("^parser, generated data: 2 minibatches of 6 sentences\n"
                                                        "per minibatch: [0-9.]+ vertices in [0-9.]+ batches")))
      << outcome.out;
  EXPECT_NE(outcome.out.find("\nproducts "), std::string::npos) << outcome.out;
  const auto lines = lines_of(run(command + " --json"));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_GT(field(lines[0], "parts"), 2 * field(lines[0], "minibatches")) << "steps of a sentence follow each other";
  EXPECT_GT(field(lines[0].substr(lines[0].find("\"achieved_per_worker\"")), "moves"), 0) << lines[0];
}

TEST_F(Explain, SaysOfAModelWithoutGraphsWhichOpsTakeTheTime) {
  const std::string command = "windrow explain mlp --samples 8 --batch 4 --hidden 8 --workers 1 --seconds 0.01";
  const Outcome outcome = run(command);
  EXPECT_EQ(outcome.err, "");
  EXPECT_TRUE(std::regex_search(
      outcome.out, std::regex("^mlp, generated data: 2 minibatches of 4 images\nper minibatch: [0-9.]+ ops\n")))
      << outcome.out;
  for (const char* const part : {"\nmatmul +3\\.0 +[0-9.]+ +[0-9.]+ %\n", "\nall ops +[0-9.]+ +[0-9.]+\n",
                                 "\nproducts, by their formula: [0-9.]+ GFLOP/s, [0-9.]+ % of the "}) {
    EXPECT_TRUE(std::regex_search(outcome.out, std::regex(part))) << part << "\n" << outcome.out;
  }
  EXPECT_EQ(outcome.out.find("builds its graphs"), std::string::npos) << outcome.out;
  const auto lines = lines_of(run(command + " --json"));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_GT(field(lines[0], "minibatches"), 0);
  EXPECT_GT(field(lines[0], "products_by_formula"), 0);
}

}  // namespace
}  // namespace windrow::testing
