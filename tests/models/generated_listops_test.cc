// Generated ListOps: the statistics of what its authors published.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "tests/sanitized.h"
#include "windrow/models/datasets.h"

namespace windrow {
namespace {

using testing::sanitized;

std::vector<ListOpsTree> read_generated(const std::string& text) {
  std::istringstream in(text);
  return read_listops(in, "generated");
}

/// How many vertices there are from the root to the farthest digit.
int depth_of(const GraphData& graph) {
  std::vector<int> depth;
  for (std::size_t v = 0; v + 1 < graph.child_begin.size(); ++v) {
    depth.push_back(1);
    for (auto e = graph.child_begin[v]; e < graph.child_begin[v + 1]; ++e) {
      const auto child = static_cast<std::size_t>(graph.children[static_cast<std::size_t>(e)]);
      depth[v] = std::max(depth[v], depth[child] + 1);
    }
  }
  return depth.back();
}

int longest_list(const GraphData& graph) {
  int most = 0;
  for (std::size_t v = 1; v < graph.child_begin.size(); ++v) {
    most = std::max(most, graph.child_begin[v] - graph.child_begin[v - 1]);
  }
  return most;
}

/// The figures of the 10,000 trees for testing that were published.
TEST(GeneratedListOps, FollowsThePublishedData) {
  for (std::uint64_t seed = 1; seed <= (sanitized ? 1 : 2); ++seed) {
    const auto trees = read_generated(generate_listops(100000, seed));
    ASSERT_EQ(trees.size(), 100000u);
    double vertices = 0, flat = 0, deepest = 0;
    std::map<std::int32_t, double> arguments, symbols;
    for (const ListOpsTree& tree : trees) {
      const GraphData& graph = tree.graph;
      const int depth = depth_of(graph);
      flat += depth == 2;
      deepest += depth == 20;
      ASSERT_LE(depth, 20);
      for (const std::int32_t symbol : graph.indices.at("symbol")) ++symbols[symbol], ++vertices;
      for (std::size_t v = 1; v < graph.child_begin.size(); ++v)
        ++arguments[graph.child_begin[v] - graph.child_begin[v - 1]];
    }
    EXPECT_NEAR(vertices / 1e5, 33.6, 1) << "seed " << seed;
    EXPECT_NEAR(flat / 1e5, 0.209, 0.01) << "seed " << seed;
    EXPECT_NEAR(deepest / 1e5, 0.032, 0.004) << "seed " << seed;
    const double lists = vertices - arguments[0];
    EXPECT_EQ(arguments.size(), 5u) << "seed " << seed;  // with digits, which have none
    EXPECT_NEAR(arguments[2] / lists, 0.236, 0.01) << "seed " << seed;
    EXPECT_NEAR(arguments[5] / lists, 0.261, 0.01) << "seed " << seed;
    EXPECT_EQ(symbols.size(), static_cast<std::size_t>(listops_symbols)) << "seed " << seed;
    for (std::int32_t symbol = 10; symbol < listops_symbols; ++symbol) {
      EXPECT_NEAR(symbols[symbol] / lists, 0.25, 0.01) << "seed " << seed;
    }
  }
}

TEST(GeneratedListOps, HasNoTreeTwiceButWhereThereAreFew) {
  const auto distinct = [](const std::string& text) {
    std::istringstream lines(text);
    std::set<std::string> result;
    for (std::string line; std::getline(lines, line);) result.insert(line);
    return result.size();
  };
  EXPECT_EQ(distinct(generate_listops(20000, 3)), 20000u);
  // There are 4 operators on two digits.
  EXPECT_EQ(distinct(generate_listops(4000, 3, {.max_arguments = 2, .max_depth = 2})), 400u);
}

TEST(GeneratedListOps, KeepsToItsShape) {
  int deepest = 0, longest = 0;
  for (const ListOpsTree& tree : read_generated(generate_listops(2000, 4, {.max_arguments = 8, .max_depth = 4}))) {
    deepest = std::max(deepest, depth_of(tree.graph));
    longest = std::max(longest, longest_list(tree.graph));
  }
  EXPECT_EQ(deepest, 4);
  EXPECT_EQ(longest, 8);
}

TEST(GeneratedListOps, RefusesShapesOutOfRange) {
  const auto refused = [](ListOpsShape shape) -> std::string {
    try {
      generate_listops(1, 1, shape);
    } catch (const MisuseError& error) {
      return error.what();
    }
    return "was generated";
  };
  EXPECT_EQ(refused({.max_arguments = 1}), "generate_listops: max_arguments 1; expected 2 to 10");
  EXPECT_EQ(refused({.max_arguments = 11}), "generate_listops: max_arguments 11; expected 2 to 10");
  EXPECT_EQ(refused({.max_depth = 1}), "generate_listops: max_depth 1; expected 2 to 20");
  EXPECT_EQ(refused({.max_depth = 21}), "generate_listops: max_depth 21; expected 2 to 20");
}

TEST(GeneratedListOps, IsTheSameForTheSameSeed) {
  EXPECT_EQ(generate_listops(20, 7), generate_listops(20, 7));
  EXPECT_NE(generate_listops(20, 7), generate_listops(20, 8));
  EXPECT_EQ(generate_listops(2, 1),
            "9\t( ( ( [MAX 0 ) 9 ) ] )\n"
            "8\t( ( ( ( [MAX 6 ) ( ( ( ( ( [SM ( ( ( ( [MAX 8 ) 2 ) 7 ) ] ) ) 3 ) 1 ) ( ( ( [MED 7 ) 5 ) ] ) ) ] ) ) 1 "
            ") ] )\n");
}

}  // namespace
}  // namespace windrow
