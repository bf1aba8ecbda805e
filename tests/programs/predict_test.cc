// windrow predict: labels of texts, and what it says about texts that it cannot read.
#include <algorithm>
#include <regex>

#include "tests/programs/programs.h"

namespace windrow::testing {
namespace {

using Predictions = Programs;

TEST_F(Predictions, LabelTexts) {
  const std::string run_folder = in("run");
  const std::string train = "windrow train tree-lstm --hidden 8 --embedding 8 --samples 400 --epochs 1 --save ";
  ASSERT_EQ(run(train + run_folder).status, 0);
  const std::string predict = "windrow predict " + run_folder;
  const Outcome plain = run(predict + "--text 'w1 w2 w3' --text '(3 (2 w1) (4 w2))'");
  EXPECT_EQ(plain.err, "");
  const std::string label = "(very negative|negative|neutral|positive|very positive) [01]\\.[0-9]{2}  ";
  EXPECT_TRUE(std::regex_match(plain.out, std::regex(label + "w1 w2 w3\n" + label + "\\(3 \\(2 w1\\) \\(4 w2\\)\\)\n")))
      << plain.out;
  const Outcome parts = run(predict + "--parts --text 'w1 w2 w3'");
  EXPECT_TRUE(std::regex_match(parts.out, std::regex(label + "w1 w2 w3\n  " + label + "w1\n  " + label + "w2\n  " +
                                                     label + "w3\n  " + label + "w2 w3\n  " + label + "w1 w2 w3\n")))
      << parts.out;
  const Outcome json =
      run_command("printf '\\357\\273\\277(3 (2 w1) (4 w2))\\nw3\\n' | '" WINDROW_BIN "'/" + predict + "--json");
  const std::vector<std::string> lines = lines_of(json);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[0].find("\"probabilities\""), std::string::npos);
  EXPECT_EQ(lines[0].find("\"parts\""), std::string::npos);
  EXPECT_NE(run(predict + "--json --parts --text w3").out.find("\"parts\": [{"), std::string::npos);
  EXPECT_NE(lines[0].find("\"text\": \"(3"), std::string::npos) << "without the byte order mark";
  // Brackets are words, except for those of a tree.
  const Outcome brackets = run(predict + "--parts --text '(w1 (really)) w2'");
  EXPECT_EQ(brackets.err, "");
  const std::vector<std::string> phrases = lines_of(brackets);
  ASSERT_EQ(phrases.size(), 14u) << brackets.out;
  EXPECT_TRUE(phrases.front().ends_with("  (w1 (really)) w2")) << phrases.front();
  EXPECT_TRUE(phrases.back().ends_with("  -LRB- w1 -LRB- really -RRB- -RRB- w2")) << phrases.back();
  for (const std::string text :
       {"(2 stars) out of 5", "(2010) it works", "(7 dwarfs)", "(2 (or 3) stars) out of 5", "(1994 (restored))"}) {
    EXPECT_EQ(run(predict + "--text '" + text + "'").err, "") << text;
  }
  EXPECT_EQ(lines_of(run(predict + "--text \"$(printf 'w1\\nw2')\"")).size(), 1u);
  EXPECT_EQ(run(predict + "--text ' '").err,
            "windrow: input 1: no word; expected a sentence, or a tree such as (3 (2 It) (4 works))\n");
  for (const std::string text : {"(3 (2 w1)", "(9 (2 w1) (4 w2))", "(3 (2 w1) (4 w2)) (2 w3)"}) {
    const Outcome wrong = run(predict + "--text '" + text + "'");
    EXPECT_EQ(wrong.status, 2);
    EXPECT_TRUE(wrong.err.starts_with("windrow: input 1:1:")) << wrong.err;
    EXPECT_EQ(std::count(wrong.err.begin(), wrong.err.end(), '\n'), 1);
  }
}

/// Also where the trees that the seed draws would have no label but a neutral one.
TEST_F(Predictions, LabelTextsByTwoClasses) {
  const std::string train = "windrow train tree-lstm --classes 2 --hidden 8 --embedding 8 --samples 60 --epochs 1 ";
  for (const std::string seed : {"1", "2", "3", "4"}) {
    const std::string run_folder = in(seed);
    ASSERT_EQ(run(train + "--seed " + seed + " --save " + run_folder).err, "");
    const Outcome labelled = run("windrow predict " + run_folder + " --text 'w1 w2'");
    EXPECT_EQ(labelled.err, "");
    EXPECT_TRUE(std::regex_match(labelled.out, std::regex("(negative|positive) [01]\\.[0-9]{2}  w1 w2\n")))
        << labelled.out;
    EXPECT_EQ(run("windrow export " + run_folder + " --to '" + (folder / (seed + ".file")).string() + "'").err, "");
  }
}

TEST_F(Predictions, LabelWords) {
  const std::string train = "windrow train bilstm-char --hidden 8 --samples 64 --epochs 1 ";
  const auto to = [&](const char* name) { return in(name); };
  ASSERT_EQ(run(train + "--save " + to("run")).err, "");
  ASSERT_EQ(run(train + "--crf --save " + to("crf")).err, "");
  for (const char* name : {"run", "crf"}) {
    const Outcome labelled = run("windrow predict " + to(name) + " --text 'one two'");
    EXPECT_EQ(labelled.err, "");
    EXPECT_TRUE(std::regex_match(labelled.out, std::regex("[^ ]+ [01]\\.[0-9]{2}  one\n[^ ]+ [01]\\.[0-9]{2}  two\n")))
        << labelled.out;
  }
  EXPECT_TRUE(run(train + "--resume --save " + to("crf"))
                  .err.ends_with(": a model with switches [\"crf\"]; expected none, as the flags say\n"));
  EXPECT_TRUE(run(train + "--crf --resume --save " + to("run"))
                  .err.ends_with(": a model without switches; expected [\"crf\"], as the flags say\n"));
  const std::string other = saved_model("tree-fc --hidden 8 --leaves 4 --samples 16 --epochs 1", "other");
  EXPECT_EQ(run("windrow predict " + other + " </dev/null").err,
            "windrow: this model predicts nothing from texts; expected one of tree-lstm, fixed-lstm, var-lstm, bilstm, "
            "bilstm-char, listops, seq2seq, parser\n");
  EXPECT_EQ(run("windrow predict '" + folder.string() + "' --text x").err,
            "windrow: " + folder.string() + ": no checkpoint; expected one that windrow train --save has written\n");
}

/// Sentences keep their comments and empty nodes, and all fields of words but the head, the relation and what belongs
/// to another tree.
TEST_F(Predictions, ParseSentencesInConllu) {
  const std::string parser = in("parser"), file = (folder / "in.conllu").string();
  ASSERT_EQ(run("windrow train parser --hidden 8 --samples 64 --epochs 1 --save " + parser).err, "");
  std::ofstream(file) << "# newdoc\n\n# sent_id = 1\n# text = don't go\n0.1\tso\t_\t_\t_\t_\t_\t_\t_\t_\n"
                         "1-2\tdon't\t_\t_\t_\t_\t_\t_\t_\t_\n"
                         "1\tdo\tdo\tAUX\tVB\tMood=Imp\t_\t_\t_\t_\n2\tn't\tnot\tPART\tRB\t_\t_\t_\t_\tX=1\n"
                         "2.1\tyou\tyou\tPRON\t_\t_\t_\t_\t3:nsubj\t_\n"
                         "2.2\tghost\t_\t_\t_\t_\t_\t_\t0:root\tX=2\n"
                         "3\tgo\tgo\t_\tVB\t_\t99\troot\t0:root\t_\n"
                         "3.1\tnow\t_\t_\t_\t_\t_\t_\t3:advmod\t_\n\n"
                         "1\tone\t_\tNUM\t_\t_\t_\t_\t_\t_\n";
  const std::string predict = "'" WINDROW_BIN "/windrow' predict " + parser;
  const Outcome parsed = run_command(predict + " < '" + file + "'");
  EXPECT_EQ(parsed.err, "");
  EXPECT_TRUE(std::regex_match(
      parsed.out,
      std::regex(
          "# sent_id = 1\n# text = don't go\n0\\.1\tso\t_\t_\t_\t_\t_\t_\t_\t_\n1-2\tdon't\t_\t_\t_\t_\t_\t_\t_\t_\n"
          "1\tdo\tdo\tAUX\tVB\tMood=Imp\t[023]\t[a-z:]+\t_\t_\n2\tn't\tnot\tPART\tRB\t_\t[013]\t[a-z:]+\t_\tX=1\n"
          "2\\.1\tyou\tyou\tPRON\t_\t_\t_\t_\t3:nsubj\t_\n2\\.2\tghost\t_\t_\t_\t_\t_\t_\t0:root\tX=2\n"
          "3\tgo\tgo\t(_|[A-Z]+)\tVB\t_\t[012]\t[a-z:]+\t_\t_\n3\\.1\tnow\t_\t_\t_\t_\t_\t_\t3:advmod\t_\n\n"
          "1\tone\t_\tNUM\t_\t_\t0\troot\t_\t_\n\n")))
      << parsed.out;
  EXPECT_EQ(run_command(predict + " < '" + file + "' | " + predict).out, parsed.out) << "its own output is an input";
  EXPECT_NE(run_command(predict + " --json < '" + file + "'").out.find("\"text\": \"do n't go\""), std::string::npos);
  std::ofstream(file) << "1\tone\t_\tNUM\t_\t_\t_\t_\t_\t_\n\n3\tone\t_\tNUM\t_\t_\t_\t_\t_\t_\n";
  expect_failed(run_command(predict + " < '" + file + "'"),
                "windrow: input 2:1:1: line begins with '3'; expected 1, the next word\n");
}

TEST_F(Predictions, ParseSentencesAndFindTheValuesOfLists) {
  const std::string parser = in("parser"), lists = in("lists");
  ASSERT_EQ(run("windrow train parser --hidden 8 --samples 64 --epochs 1 --save " + parser).err, "");
  const Outcome tree = run("windrow predict " + parser + " --text 'one two|NOUN'");
  EXPECT_EQ(tree.err, "");
  EXPECT_TRUE(std::regex_match(tree.out, std::regex("# text = one two\\|NOUN\n1\tone\t_\t_\t_\t_\t[02]\t[a-z:]+\t_\t_\n"
                                                    "2\ttwo\t_\tNOUN\t_\t_\t[01]\t[a-z:]+\t_\t_\n\n")))
      << tree.out;
  EXPECT_EQ(run("windrow predict " + parser + " --text one --text 'two|'").err,
            "windrow: input 2: 'two|' has no tag; expected word|TAG\n");
  const Outcome json = run("windrow predict " + parser + " --json --text 'one two|NOUN'");
  EXPECT_NE(json.out.find(R"({"form": "two","head": )"), std::string::npos) << json.out;
  ASSERT_EQ(run("windrow train listops --hidden 8 --samples 64 --epochs 1 --save " + lists).err, "");
  const Outcome values = run("windrow predict " + lists + " --parts --text '[MAX 2 [MIN 4 7 ] ]'");
  EXPECT_TRUE(std::regex_match(values.out, std::regex("[0-9] [01]\\.[0-9]{2}  \\[MAX 2 \\[MIN 4 7 \\] \\]\n"
                                                      "  [0-9] [01]\\.[0-9]{2}  \\[MIN 4 7 \\]\n"
                                                      "  [0-9] [01]\\.[0-9]{2}  \\[MAX 2 \\[MIN 4 7 \\] \\]\n")))
      << values.out;
}

}  // namespace
}  // namespace windrow::testing
