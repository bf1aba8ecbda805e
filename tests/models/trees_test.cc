// Bracketed treebanks, ListOps, and dependency sentences in CoNLL-U with their graphs: read from text.
#include "tests/models/data.h"

namespace windrow::testing {
namespace {

using Numbers = std::vector<std::int32_t>;

TEST(Treebank, ReadsChildrenBeforeTheirConsumers) {
  const auto trees = parsed(read_treebank, "(3 (2 It) (4 (1 works) (0 well)))\r\n\n  (2\tYes )\n");
  ASSERT_EQ(trees.size(), 2u);
  const LabelledTree& tree = trees[0];
  EXPECT_EQ(tree.words, (std::vector<std::string>{"It", "works", "well", "", ""}));
  EXPECT_EQ(tree.graph.indices.at("label"), (Numbers{2, 1, 0, 4, 3}));
  EXPECT_EQ(tree.graph.child_begin, (Numbers{0, 0, 0, 0, 2, 4}));
  EXPECT_EQ(tree.graph.children, (Numbers{1, 2, 0, 3}));
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

TEST(Readers, SayWhichFileCannotBeRead) {
  expect_no_file_refused([](const auto& file) { read_treebank(file); }, "trees, one per line");
  expect_no_file_refused([](const auto& file) { read_listops(file); }, "ListOps trees, one per line");
  expect_no_file_refused([](const auto& file) { read_conllu(file); }, "sentences in CoNLL-U");
  EXPECT_EQ(refusal([] { read_treebank("/dev/zero"); }),
            "/dev/zero: not a regular file; expected a file of trees, one per line");
  std::ifstream closed("/nowhere");
  EXPECT_THROW(read_treebank(closed, "none"), DataError);
}

TEST(Treebank, NumbersAllWordsOrThoseThatAreSeenOften) {
  const auto trees = parsed(read_treebank, "(2 (2 a) (2 b))\n(2 (2 a) (2 (2 c) (2 b)))\n");
  const Vocabulary vocabulary = vocabulary_of(trees, 2);
  EXPECT_EQ(vocabulary.size(), 3);
  EXPECT_EQ(vocabulary.number("c"), Vocabulary::unknown);
  EXPECT_EQ(vocabulary_of(trees).size(), 4);
  const GraphData input = numbered(trees[0], vocabulary);
  EXPECT_EQ(input.indices.at("word"), (Numbers{vocabulary.number("a"), vocabulary.number("b"), -1}));
  EXPECT_EQ(input.indices.at("label"), (Numbers{2, 2, 2}));
}

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

/// A line of a word, or of an empty node.
std::string line(const std::string& id, const std::string& head, const std::string& deps = "_") {
  return id + "\tw" + id + "\t_\tX\t_\t_\t" + head + "\tdep\t" + deps + "\t_\n";
}

/// Words with these heads.
DependencySentence with_heads(const std::vector<std::int32_t>& heads) {
  std::string text;
  for (std::size_t i = 0; i < heads.size(); ++i) text += line(std::to_string(i + 1), std::to_string(heads[i]));
  return parsed(read_conllu, text)[0];
}

TEST(Conllu, ReadsWordsHeadsAndEnhancedDependencies) {
  const auto sentences = parsed(read_conllu,
                                "# sent_id = 1\n"
                                "# text = They ran.\n"
                                "1\tThey\tthey\tPRON\tPRP\tCase=Nom\t2\tnsubj\t2:nsubj\t_\n"
                                "2\tran\trun\tVERB\tVBD\t_\t0\troot\t0:root\tSpaceAfter=No\n"
                                "3\t.\t.\tPUNCT\t.\t_\t2\tpunct\t2:punct|1:nmod:of\t_\n"
                                "\n"
                                "1\tYes\tyes\tINTJ\tUH\t_\t0\troot\t_\t_\n");
  ASSERT_EQ(sentences.size(), 2u);
  const DependencySentence& sentence = sentences[0];
  EXPECT_EQ(sentence.forms, (std::vector<std::string>{"They", "ran", "."}));
  EXPECT_EQ(sentence.tags, (std::vector<std::string>{"PRON", "VERB", "PUNCT"}));
  EXPECT_EQ(sentence.heads, (Numbers{2, 0, 2}));
  EXPECT_EQ(sentence.relations, (std::vector<std::string>{"nsubj", "root", "punct"}));
  EXPECT_EQ(sentence.enhanced,
            (std::vector<std::vector<Arc>>{{{2, "nsubj"}}, {{0, "root"}}, {{2, "punct"}, {1, "nmod:of"}}}));
  EXPECT_EQ(sentences[1].enhanced, std::vector<std::vector<Arc>>(1));
}

TEST(Conllu, MayHaveAByteOrderMarkForeignLineEndsAndBlankLines) {
  const auto sentences =
      parsed(read_conllu, "\xef\xbb\xbf\r\n# a comment\r\n\r\n1\ta\t_\tX\t_\t_\t0\troot\t_\t_\r\n \r\n\r\n" +
                              line("1", "0") + "\n# end\n");
  ASSERT_EQ(sentences.size(), 2u);
  EXPECT_EQ(sentences[0].forms, std::vector<std::string>{"a"});
  EXPECT_EQ(sentences[1].forms, std::vector<std::string>{"w1"});
}

TEST(Conllu, PassesOverRangesSinceTheirWordsFollow) {
  const std::string range = "\tdon't" + std::string(8, '\t') + "\n";
  const auto sentences = parsed(
      read_conllu, line("1", "2") + "2-3" + range + line("2", "0") + line("3", "2") + "4-4" + range + line("4", "2"));
  EXPECT_EQ(sentences[0].forms, (std::vector<std::string>{"w1", "w2", "w3", "w4"}));
}

TEST(Conllu, KeepsEmptyNodesBehindTheWords) {
  const auto sentences =
      parsed(read_conllu, line("0.1", "_", "2:a") + line("1", "0", "0:root") + line("1.1", "_", "1:b") +
                              line("1.2", "_", "1.1:c") + line("2", "1", "1.2:d|0.1:e"));
  const DependencySentence& sentence = sentences[0];
  EXPECT_EQ(sentence.forms, (std::vector<std::string>{"w1", "w2", "w0.1", "w1.1", "w1.2"}));
  EXPECT_EQ(sentence.tags.size(), 5u);
  EXPECT_EQ(sentence.heads, (Numbers{0, 1}));
  EXPECT_EQ(sentence.enhanced,
            (std::vector<std::vector<Arc>>{{{0, "root"}}, {{5, "d"}, {3, "e"}}, {{2, "a"}}, {{1, "b"}}, {{4, "c"}}}));
}

const std::string first = line("1", "0");

TEST(BadConllu, IsRefusedInOneLine) {
  expect_refused(
      read_conllu,
      {{"", "1:1: no sentence; expected lines of ten fields in CoNLL-U"},
       {"\n# text = none\n\n", "1:1: no sentence; expected lines of ten fields in CoNLL-U"},
       {"1 a _ X _ _ 0 root _ _\n", "1:1: 1 field; expected 10, separated by tabs"},
       {"\n1\ta\tb\n", "2:1: 3 fields; expected 10, separated by tabs"},
       {"1\ta\t_\tX\t_\t_\t0\troot\t_\t_\t_\n", "1:1: 11 fields; expected 10, separated by tabs"},
       {line("2", "0"), "1:1: line begins with '2'; expected 1, the next word"},
       {first + line("1", "0"), "2:1: line begins with '1'; expected 2, the next word"},
       {line("x", "0"), "1:1: line begins with 'x'; expected 1, the next word"},
       {line("", "0"), "1:1: line begins with ''; expected 1, the next word"},
       {line("99999999999999", "0"), "1:1: line begins with '99999999999999'; expected 1, the next word"},
       {first + line("1.2", "_"), "2:1: empty node '1.2'; expected 1.1"},
       {first + line("1.1", "_") + line("1.1", "_"), "3:1: empty node '1.1'; expected 1.2"},
       {first + line("2.1", "_"), "2:1: empty node '2.1'; expected 1.1"},
       {first + line("1.x", "_"), "2:1: empty node '1.x'; expected 1.1"},
       {line("2-3", "_"), "1:1: range '2-3'; expected a range that begins with 1 and ends there or later"},
       {first + line("2-1", "_"), "2:1: range '2-1'; expected a range that begins with 2 and ends there or later"},
       {line("1-2", "_") + first + line("2-3", "_"),
        "3:1: range '2-3'; expected a range that begins with 3 and ends there or later"},
       {line("1-2", "_") + first, "1:1: a range ends with 2; expected at most 1, the last word"},
       {line("1-1", "_"), "1:1: a sentence without words; expected lines that begin with 1, 2, ..."},
       {line("0.1", "_"), "1:1: a sentence without words; expected lines that begin with 1, 2, ..."},
       {"1\t\t_\tX\t_\t_\t0\troot\t_\t_\n", "1:3: no form; expected a form or _"},
       {"1\ta\t_\t\t_\t_\t0\troot\t_\t_\n", "1:7: no part of speech; expected a part of speech or _"},
       {"1\ta\t_\tX\t_\t_\t0\t\t_\t_\n", "1:15: no relation; expected a relation or _"},
       {line("1", "_"), "1:14: head '_'; expected the number of a word or 0"},
       {line("1", "-1"), "1:14: head '-1'; expected the number of a word or 0"},
       {line("1", "1x"), "1:14: head '1x'; expected the number of a word or 0"},
       {line("1", "7"), "1:14: head 7; expected 0 to 1"},
       {line("1", "1"), "1:14: word 1 is its own head; expected another"},
       {first + line("2", "0"), "2:14: a second root; expected one root, word 1"},
       {line("1", "2") + line("2", "1"), "1:14: the heads form a cycle through word 1; expected a tree"},
       {first + line("2", "3") + line("3", "4") + line("4", "3"),
        "3:14: the heads form a cycle through word 3; expected a tree"},
       {line("1", "0", ""), "1:20: enhanced dependency ''; expected one such as 4:nsubj, or _ for none"},
       {line("1", "0", "0:root|x"), "1:27: enhanced dependency 'x'; expected one such as 4:nsubj, or _ for none"},
       {line("1", "0", "0:"), "1:20: enhanced dependency '0:'; expected one such as 4:nsubj, or _ for none"},
       {line("1", "0", "1:a"), "1:20: 1 is its own head; expected another"},
       {line("1", "0", "9:a"), "1:20: head 9 is not in the sentence; expected a word or 0"},
       {line("1", "0", "1.1:a"), "1:20: head 1.1 is not in the sentence; expected a word or 0"}});
}

TEST(Conllu, TakesNoStackForLongChains) {
  constexpr int words = 300000;
  std::string text;
  for (int i = 1; i <= words; ++i) {
    const std::string head = std::to_string(i - 1);
    text += line(std::to_string(i), head, head + ":dep");
  }
  const DependencySentence sentence = parsed(read_conllu, text)[0];
  EXPECT_TRUE(projective(sentence));
  EXPECT_EQ(dependency_tree(sentence).children.size(), words - 1u);
  EXPECT_EQ(enhanced_graph(sentence).children.size(), words - 1u);
}

/// Compares with the definition, pair by pair.
TEST(Projective, AgreesWithTheDefinitionOnAllTreesOfFiveWords) {
  int trees = 0, crossed = 0;
  for (int code = 0; code < 6 * 6 * 6 * 6 * 6; ++code) {
    DependencySentence sentence;
    for (int i = 0, rest = code; i < 5; ++i, rest /= 6) sentence.heads.push_back(rest % 6);
    bool expected = true;
    for (std::int32_t a = 1; a <= 5; ++a) {
      for (std::int32_t b = 1; b <= 5; ++b) {
        const auto [left, right] = std::minmax({a, sentence.heads[static_cast<std::size_t>(a) - 1]});
        const auto [from, to] = std::minmax({b, sentence.heads[static_cast<std::size_t>(b) - 1]});
        if (left < from && from < right && right < to) expected = false;
      }
    }
    ++trees;
    crossed += !expected;
    ASSERT_EQ(projective(sentence), expected) << "code " << code;
  }
  EXPECT_GT(crossed, trees / 10);
}

TEST(DependencyTree, HasDependentsAsChildrenFromLeftToRight) {
  const GraphData tree = dependency_tree(with_heads({2, 0, 5, 5, 2}));
  EXPECT_EQ(tree.child_begin, (Numbers{0, 0, 2, 2, 2, 4}));
  EXPECT_EQ(tree.children, (Numbers{0, 4, 2, 3}));
}

TEST(EnhancedGraph, LeavesOutWhatLeadsBack) {
  // The story(1) that comes(2): a clause of the story, of which the story is the subject.
  const Vocabulary relations(std::vector<std::string>{"nsubj", "acl:relcl"}, 1);
  const GraphData story = enhanced_graph(
      parsed(read_conllu, line("1", "0", "0:root|2:nsubj") + line("2", "1", "1:acl:relcl"))[0], relations);
  EXPECT_EQ(story.child_begin, (Numbers{0, 1, 1}));
  EXPECT_EQ(story.children, Numbers{1});
  EXPECT_EQ(story.edge_indices.at("relation"), Numbers{2});
  // Circles that do not hang on the root too.
  const GraphData apart =
      enhanced_graph(parsed(read_conllu, line("1", "0", "2:a") + line("2", "1", "1:b") + line("3", "1"))[0]);
  EXPECT_EQ(apart.child_begin, (Numbers{0, 1, 1, 1}));
  EXPECT_EQ(apart.children, Numbers{1});
}

TEST(EnhancedGraph, HasAWordAmongTheChildrenOfAllItsHeadsOnceWithItsRelation) {
  const DependencySentence sentence =
      parsed(read_conllu, line("1", "2", "2:nsubj|3:obj|3:again|2.1:x") + line("2", "0", "0:root") +
                              line("2.1", "_", "3:y") + line("3", "2", "2:conj"))[0];
  const Vocabulary relations(std::vector<std::string>{"conj", "nsubj", "obj", "again", "y"}, 1);
  const GraphData graph = enhanced_graph(sentence, relations);
  EXPECT_EQ(graph.child_begin, (Numbers{0, 0, 2, 4, 5}));
  EXPECT_EQ(graph.children, (Numbers{0, 2, 0, 3, 0}));
  EXPECT_EQ(graph.edge_indices.at("relation"), (Numbers{2, 1, 3, 5, 0})) << "the first of several, 0 if unknown";
}

}  // namespace
}  // namespace windrow::testing
