// Bracketed treebanks, read and generated.
#include "windrow/models/treebank.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "tests/models/refusal.h"

namespace windrow {
namespace {

std::vector<LabelledTree> parsed_treebank(const std::string& text) {
  std::istringstream in(text);
  return read_treebank(in, "trees.txt");
}

TEST(Treebank, ReadsChildrenBeforeTheirConsumers) {
  const auto trees = parsed_treebank("(3 (2 It) (4 (1 works) (0 well)))\r\n\n  (2\tYes )\n");
  ASSERT_EQ(trees.size(), 2u);
  const LabelledTree& tree = trees[0];
  EXPECT_EQ(tree.words, (std::vector<std::string>{"It", "works", "well", "", ""}));
  EXPECT_EQ(tree.graph.indices.at("label"), (std::vector<std::int32_t>{2, 1, 0, 4, 3}));
  EXPECT_EQ(tree.graph.child_begin, (std::vector<std::int32_t>{0, 0, 0, 0, 2, 4}));
  EXPECT_EQ(tree.graph.children, (std::vector<std::int32_t>{1, 2, 0, 3}));
  EXPECT_EQ(trees[1].words, std::vector<std::string>{"Yes"});
  EXPECT_EQ(parsed_treebank("\xef\xbb\xbf(2 Yes)")[0].words, std::vector<std::string>{"Yes"});
}

TEST(BadTreebank, IsRefusedInOneLine) {
  expect_refused(
      "trees.txt:", parsed_treebank,
      {{"", "1:1: no tree; expected one per line, such as (3 (2 It) (4 works))"},
       {"\n \r\n", "1:1: no tree; expected one per line, such as (3 (2 It) (4 works))"},
       {"(2 Yes)\n(5 No)", "2:2: label '5'; expected a label from 0 to 4"},
       {"(2 (-1 Yes) (2 No))", "1:5: label '-1'; expected a label from 0 to 4"},
       {"(\x02\xff Yes)", "1:2: label '?\?'; expected a label from 0 to 4"},
       {"(abcdefghijklmnopqrstuvwxyz Yes)", "1:2: label 'abcdefghijklmnopqrst...'; expected a label from 0 to 4"},
       {"(22 Yes)", "1:2: label '22'; expected a label from 0 to 4"},
       {"(2 (Yes) (2 No))", "1:5: label 'Yes'; expected a label from 0 to 4"},
       {"(2 () (2 No))", "1:5: no label after '('; expected a label from 0 to 4"},
       {"(2 Yes", "1:7: the line ends inside a tree; expected ')'"},
       {"(", "1:2: no label after '('; expected a label from 0 to 4"},
       {"(2 Yes))", "1:8: ')' after the tree; expected the end of the line"},
       {"(2 Yes) (2 No)", "1:9: '(' after the tree; expected the end of the line"},
       {"Yes", "1:1: 'Y' at the start of a tree; expected '('"},
       {"\x01", "1:1: byte 0x01 at the start of a tree; expected '('"},
       {"(2)", "1:1: a vertex without a word; expected a word or two subtrees"},
       {"(2 (1 Yes))", "1:1: a vertex with one subtree; expected a word or two subtrees"},
       {"(2 (1 a) (1 b) (1 c))", "1:16: a third subtree; expected ')' after two"},
       {"(2 not (1 a))", "1:8: a word and a subtree in one vertex; expected a word or two subtrees"},
       {"(2 (1 a) b)", "1:10: a word and a subtree in one vertex; expected a word or two subtrees"},
       {"(2 two words)", "1:8: a second word in one vertex; expected ')'"}});
}

TEST(Treebank, TakesNoStackForDepth) {
  constexpr int depth = 200000;
  std::string text;
  for (int i = 0; i < depth; ++i) text += "(2 (1 a) ";
  text += "(0 b)" + std::string(depth, ')');
  EXPECT_EQ(parsed_treebank(text)[0].words.size(), 2u * depth + 1);
}

TEST(Treebank, SaysWhichFileCannotBeRead) {
  expect_no_file_refused([](const auto& file) { read_treebank(file); }, "trees, one per line");
  EXPECT_EQ(refusal([] { read_treebank("/dev/zero"); }),
            "/dev/zero: not a regular file; expected a file of trees, one per line");
  std::ifstream closed("/nowhere");
  EXPECT_THROW(read_treebank(closed, "none"), DataError);
}

TEST(Treebank, NumbersTheWordsThatAreSeenTwice) {
  const auto trees = parsed_treebank("(2 (2 a) (2 b))\n(2 (2 a) (2 (2 c) (2 b)))\n");
  const Vocabulary vocabulary = vocabulary_of(trees);
  EXPECT_EQ(vocabulary.size(), 3);
  EXPECT_EQ(vocabulary.number("c"), Vocabulary::unknown);
  EXPECT_EQ(vocabulary_of(trees, 1).size(), 4);
  const GraphData input = numbered(trees[0], vocabulary);
  EXPECT_EQ(input.indices.at("word"), (std::vector<std::int32_t>{vocabulary.number("a"), vocabulary.number("b"), -1}));
  EXPECT_EQ(input.indices.at("label"), (std::vector<std::int32_t>{2, 2, 2}));
}

// --- The generated treebank

/// Of a tree: how many vertices each level has, its shape, and how its vertices' children lie.
struct Shape {
  std::map<int, int> widths;
  std::string brackets;
  int pairs = 0, level_pairs = 0;
};

Shape shape_of(const GraphData& graph) {
  Shape shape;
  std::vector<int> level;
  std::vector<std::string> brackets;
  for (std::size_t v = 0; v + 1 < graph.child_begin.size(); ++v) {
    level.push_back(0);
    brackets.emplace_back(".");
    if (graph.child_begin[v + 1] > graph.child_begin[v]) {
      const auto first = static_cast<std::size_t>(graph.child_begin[v]);
      const auto l = static_cast<std::size_t>(graph.children[first]);
      const auto r = static_cast<std::size_t>(graph.children[first + 1]);
      level[v] = 1 + std::max(level[l], level[r]);
      brackets[v] = "(" + brackets[l] + brackets[r] + ")";
      ++shape.pairs;
      shape.level_pairs += level[l] == level[r];
    }
    ++shape.widths[level[v]];
  }
  shape.brackets = brackets.back();
  return shape;
}

/// The figures that are known of the Stanford treebank's training part.
struct Statistics {
  double vertices = 0, leaves = 0, shapes = 0, levels = 0, width = 0, narrow = 0, level_pairs = 0;

  explicit Statistics(const std::vector<LabelledTree>& trees) {
    std::set<std::string> distinct;
    int all = 0, words = 0, pairs = 0, level_together = 0, minibatches = 0, rows = 0, narrow_rows = 0;
    std::map<int, int> widths;
    for (std::size_t i = 0; i < trees.size(); ++i) {
      const Shape shape = shape_of(trees[i].graph);
      distinct.insert(shape.brackets);
      for (const auto& [level, count] : shape.widths) {
        widths[level] += count;
        all += count;
      }
      words += shape.widths.at(0);
      pairs += shape.pairs;
      level_together += shape.level_pairs;
      if (i % 256 != 255) continue;
      ++minibatches;
      for (const auto& [level, count] : widths) narrow_rows += count <= 8;
      rows += static_cast<int>(widths.size());
      widths.clear();
    }
    vertices = static_cast<double>(all) / static_cast<double>(trees.size());
    leaves = static_cast<double>(words) / all;
    shapes = static_cast<double>(distinct.size());
    levels = static_cast<double>(rows) / minibatches;
    width = 256 * vertices / levels;
    narrow = static_cast<double>(narrow_rows) / rows;
    level_pairs = static_cast<double>(level_together) / pairs;
  }
};

TEST(GeneratedTreebank, FollowsTheShapeOfTheStanfordTreebank) {
  for (std::uint64_t seed : {1, 2, 3}) {
    const Statistics found(parsed_treebank(generate_treebank(8544, seed)));
    EXPECT_NEAR(found.vertices, 37.3, 1) << "seed " << seed;
    EXPECT_NEAR(found.leaves, 0.513, 0.002) << "seed " << seed;
    EXPECT_NEAR(found.shapes, 7400, 200) << "seed " << seed;
    EXPECT_NEAR(found.levels, 24, 1.5) << "seed " << seed;
    EXPECT_NEAR(found.width, 398, 25) << "seed " << seed;
    EXPECT_NEAR(found.narrow, 0.23, 0.03) << "seed " << seed;
    EXPECT_NEAR(found.level_pairs, 0.276, 0.02) << "seed " << seed;
  }
}

TEST(GeneratedTreebank, HasLabelsThatFollowFromChildren) {
  int negations = 0, emphases = 0, sums = 0;
  for (const LabelledTree& tree : parsed_treebank(generate_treebank(500, 4))) {
    const auto& label = tree.graph.indices.at("label");
    for (std::size_t v = 0; v < tree.words.size(); ++v) {
      const auto first = static_cast<std::size_t>(tree.graph.child_begin[v]);
      const std::string& word = tree.words[v];
      int expected = 2 + word.starts_with("good") - word.starts_with("bad");
      if (word.empty()) {
        const auto left = static_cast<std::size_t>(tree.graph.children[first]);
        const auto right = static_cast<std::size_t>(tree.graph.children[first + 1]);
        const bool negates = tree.words[left].starts_with("not"), doubles = tree.words[left].starts_with("very");
        const int worth = negates ? 2 - label[right] : (doubles ? 2 : 1) * (label[right] - 2) + label[left] - 2;
        expected = 2 + std::clamp(worth, -2, 2);
        ++(negates ? negations : doubles ? emphases : sums);
      }
      ASSERT_EQ(label[v], expected);
    }
  }
  EXPECT_GT(negations, 50);
  EXPECT_GT(emphases, 50);
  EXPECT_GT(sums, 5000);
}

TEST(GeneratedTreebank, HasFewerWordsOnTheLeftTheMoreRarely) {
  std::map<std::size_t, int> splits;
  for (const LabelledTree& tree : parsed_treebank(generate_treebank(2000, 5))) {
    std::vector<std::size_t> words;
    for (std::size_t v = 0; v < tree.words.size(); ++v) {
      words.push_back(1);
      if (!tree.words[v].empty()) continue;
      const auto first = static_cast<std::size_t>(tree.graph.child_begin[v]);
      const auto left = words[static_cast<std::size_t>(tree.graph.children[first])];
      words.back() = left + words[static_cast<std::size_t>(tree.graph.children[first + 1])];
      if (words.back() >= 12) ++splits[left];
    }
  }
  EXPECT_GT(splits[1], 2 * splits[2]);
  EXPECT_GT(splits[2], splits[4] * 3 / 2);
  EXPECT_GT(splits[4], splits[8] * 3 / 2);
}

TEST(GeneratedTreebank, IsTheSameForTheSameSeed) {
  EXPECT_EQ(generate_treebank(20, 7), generate_treebank(20, 7));
  EXPECT_NE(generate_treebank(20, 7), generate_treebank(20, 8));
  EXPECT_EQ(
      generate_treebank(1, 1),
      "(1 (1 (2 word30) (1 (2 (3 good165) (1 (2 not269) (3 good2))) (1 (2 (2 (2 word10) (2 word52)) (2 word13)) (1 "
      "bad19)))) (2 word935))\n");
}

}  // namespace
}  // namespace windrow
