// ListOps, read from text.
#include "tests/models/data.h"

namespace windrow::testing {
namespace {

using Numbers = std::vector<std::int32_t>;

TEST(ListOps, ReadsArgumentsBeforeTheirLists) {
  const auto trees = parsed(read_listops, "6\t[MAX 2 1 [MIN 6 8 ] ]\n");
  ASSERT_EQ(trees.size(), 1u);
  const GraphData& graph = trees[0].graph;
  EXPECT_EQ(graph.indices.at("symbol"), (Numbers{2, 1, 6, 8, 11, 10}));
  EXPECT_EQ(graph.indices.at("label"), (Numbers{2, 1, 6, 8, 6, 6}));
  EXPECT_EQ(graph.child_begin, (Numbers{0, 0, 0, 0, 0, 2, 5}));
  EXPECT_EQ(graph.children, (Numbers{2, 3, 0, 1, 4}));
  EXPECT_EQ(trees[0].value, 6);
}

TEST(ListOps, MayHaveRoundBracketsAsPublished) {
  const GraphData plain = parsed(read_listops, "[MAX 2 1 [MIN 6 8 ] ]")[0].graph;
  const GraphData published = parsed(read_listops, "6\t( ( ( ( [MAX 2 ) 1 ) ( ( ( [MIN 6 ) 8 ) ] ) ) ] )")[0].graph;
  EXPECT_EQ(published.children, plain.children);
  EXPECT_EQ(published.child_begin, plain.child_begin);
  EXPECT_EQ(published.indices, plain.indices);
}

TEST(ListOps, MayBeADigitOrLackBlanksAndValues) {
  EXPECT_EQ(parsed(read_listops, "3\t3")[0].value, 3);
  EXPECT_EQ(parsed(read_listops, "7")[0].graph.indices.at("symbol"), Numbers{7});
  EXPECT_EQ(parsed(read_listops, " [MAX[MIN 4 7]0]")[0].value, 4);
}

TEST(ListOps, MayHaveAByteOrderMarkForeignLineEndsAndBlankLines) {
  const auto trees = parsed(read_listops,
                            "\xef\xbb\xbf"
                            "2\t[MAX 1 2 ]\r\n\r\n \n 3 \t[SM 1 2 ] \r\n");
  ASSERT_EQ(trees.size(), 2u);
  EXPECT_EQ(trees[0].value, 2);
  EXPECT_EQ(trees[1].value, 3);
}

TEST(ListOps, KnowsWhatListsAreWorth) {
  const auto value = [](const std::string& text) { return parsed(read_listops, text)[0].value; };
  EXPECT_EQ(value("[MAX 2 9 0 ]"), 9);
  EXPECT_EQ(value("[MIN 2 9 1 ]"), 1);
  EXPECT_EQ(value("[MED 9 1 4 ]"), 4);
  EXPECT_EQ(value("[MED 9 1 4 5 ]"), 4);  // of 4.5
  EXPECT_EQ(value("[SM 9 8 7 ]"), 4);
  EXPECT_EQ(value("[SM 5 5 ]"), 0);
  EXPECT_EQ(value("[MED 8 ]"), 8);
  EXPECT_EQ(value("[SM [MAX 1 7 ] [MED 3 3 9 ] [MIN 8 6 ] ]"), 6);
}

TEST(BadListOps, IsRefusedInOneLine) {
  expect_refused(read_listops, {{"", "1:1: no tree; expected one per line, such as 9, a tab and [MAX 2 9 ]"},
                                {"\n \r\n", "1:1: no tree; expected one per line, such as 9, a tab and [MAX 2 9 ]"},
                                {"3\t", "1:3: no tree; expected a list such as [MAX 2 9 ], or a digit"},
                                {"( )", "1:4: no tree; expected a list such as [MAX 2 9 ], or a digit"},
                                {"[MAX 1 2", "1:9: the line ends inside a list; expected ']'"},
                                {"\n( [MAX 1 2 ]", "2:13: the line ends inside parentheses; expected ')'"},
                                {"[MAX 1 2 ] )", "1:12: ')' without '('; expected matching parentheses"},
                                {") [MAX 1 2 ] (", "1:1: ')' without '('; expected matching parentheses"},
                                {"]", "1:1: ']' outside a list; expected a list such as [MAX 2 9 ]"},
                                {"[MAX 1 2 ] ]", "1:12: ']' outside a list; expected a list such as [MAX 2 9 ]"},
                                {"[SM 1 [MAX ] ]", "1:7: a list without arguments; expected digits or lists"},
                                {"[SUM 1 2 ]", "1:1: '[SUM'; expected [MAX, [MIN, [MED or [SM"},
                                {"[ MAX 1 2 ]", "1:1: '['; expected [MAX, [MIN, [MED or [SM"},
                                {"[MAX 1 10 ]", "1:8: '10'; expected a digit, a list, or ']'"},
                                {"[MAX 1 -2 ]", "1:8: '-2'; expected a digit, a list, or ']'"},
                                {"[MAX 1 \xff\x01 ]", "1:8: '?\?'; expected a digit, a list, or ']'"},
                                {"MAX 1 2", "1:1: 'MAX'; expected a digit, a list, or ']'"},
                                {"[MAX 1 2 ] 3", "1:12: '3' after the tree; expected the end of the line"},
                                {"2 [MAX 1 2 ]", "1:3: '[MAX' after the tree; expected the end of the line"},
                                {"2\t[MAX 1 2 ]\n3\t[MAX 1 2 ]", "2:1: value 3; expected 2, the value of the tree"},
                                {"12\t[MAX 1 2 ]", "1:1: value '12' before the tab; expected 0 to 9"},
                                {" \t[MAX 1 2 ]", "1:1: value '?' before the tab; expected 0 to 9"},
                                {"\xef\xbb\xbf"
                                 "x\t1",
                                 "1:4: value 'x' before the tab; expected 0 to 9"}});
}

TEST(ListOps, TakesNoStackForDepth) {
  constexpr int depth = 1000000;
  std::string text;
  for (int i = 0; i < depth; ++i) text += "( [SM 1 ";
  text += "0";
  for (int i = 0; i < depth; ++i) text += " ] )";
  EXPECT_EQ(parsed(read_listops, text)[0].graph.child_begin.size(), 2u * depth + 2);
  EXPECT_EQ(refusal([&] { parsed(read_listops, text + "]"); }).substr(0, 6), "text:1");
}

TEST(ListOps, TakesAnyNumberOfArguments) {
  constexpr std::size_t arguments = 1000000;
  std::string text = "[SM";
  for (std::size_t i = 0; i < arguments; ++i) text += " 9";
  EXPECT_EQ(parsed(read_listops, text + " ]")[0].graph.children.size(), arguments);
}

TEST(ListOps, SaysWhichFileCannotBeRead) {
  expect_no_file_refused([](const auto& file) { read_listops(file); }, "ListOps trees, one per line");
}

}  // namespace
}  // namespace windrow::testing
