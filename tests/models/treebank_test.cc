// Bracketed treebanks, read and generated.
#include "tests/mix.h"
#include "tests/models/data.h"

namespace windrow::testing {
namespace {

TEST(Treebank, ReadsChildrenBeforeTheirConsumers) {
  const auto trees = parsed(read_treebank, "(3 (2 It) (4 (1 works) (0 well)))\r\n\n  (2\tYes )\n");
  ASSERT_EQ(trees.size(), 2u);
  const LabelledTree& tree = trees[0];
  EXPECT_EQ(tree.words, (std::vector<std::string>{"It", "works", "well", "", ""}));
  EXPECT_EQ(tree.graph.indices.at("label"), (std::vector<std::int32_t>{2, 1, 0, 4, 3}));
  EXPECT_EQ(tree.graph.child_begin, (std::vector<std::int32_t>{0, 0, 0, 0, 2, 4}));
  EXPECT_EQ(tree.graph.children, (std::vector<std::int32_t>{1, 2, 0, 3}));
  EXPECT_EQ(trees[1].words, std::vector<std::string>{"Yes"});
  EXPECT_EQ(parsed(read_treebank, "\xef\xbb\xbf(2 Yes)")[0].words, std::vector<std::string>{"Yes"});
}

TEST(BadTreebank, IsRefusedInOneLine) {
  expect_refused(
      read_treebank,
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
  EXPECT_EQ(parsed(read_treebank, text)[0].words.size(), 2u * depth + 1);
}

TEST(Treebank, SaysWhichFileCannotBeRead) {
  expect_no_file_refused([](const auto& file) { read_treebank(file); }, "trees, one per line");
  EXPECT_EQ(refusal([] { read_treebank("/dev/zero"); }),
            "/dev/zero: not a regular file; expected a file of trees, one per line");
  std::ifstream closed("/nowhere");
  EXPECT_THROW(read_treebank(closed, "none"), DataError);
}

TEST(Treebank, NumbersTheWordsThatAreSeenTwice) {
  const auto trees = parsed(read_treebank, "(2 (2 a) (2 b))\n(2 (2 a) (2 (2 c) (2 b)))\n");
  const Vocabulary vocabulary = vocabulary_of(trees);
  EXPECT_EQ(vocabulary.size(), 3);
  EXPECT_EQ(vocabulary.number("c"), Vocabulary::unknown);
  EXPECT_EQ(vocabulary_of(trees, 1).size(), 4);
  const GraphData input = numbered(trees[0], vocabulary);
  EXPECT_EQ(input.indices.at("word"), (std::vector<std::int32_t>{vocabulary.number("a"), vocabulary.number("b"), -1}));
  EXPECT_EQ(input.indices.at("label"), (std::vector<std::int32_t>{2, 2, 2}));
}

}  // namespace
}  // namespace windrow::testing
