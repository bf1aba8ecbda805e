// windrow predict: labels of texts, and what it says about texts that it cannot read. windrow sample: sentences that
// are drawn.
#include <cmath>

#include "tests/programs/programs.h"

namespace windrow::testing {
namespace {

using Predictions = Programs;

TEST_F(Predictions, LabelTexts) {
  const std::string predict =
      "windrow predict " + saved_model("tree-lstm --hidden 8 --embedding 8 --samples 400 --epochs 1");
  const std::string label = "(very negative|negative|neutral|positive|very positive) [01]\\.[0-9]{2}  ";
  expect_match(output(predict + "--text 'w1 w2 w3' --text '(3 (2 w1) (4 w2))'"),
               label + "w1 w2 w3\n" + label + "\\(3 \\(2 w1\\) \\(4 w2\\)\\)\n");
  expect_match(output(predict + "--parts --text 'w1 w2 w3'"), label + "w1 w2 w3\n  " + label + "w1\n  " + label +
                                                                  "w2\n  " + label + "w3\n  " + label + "w2 w3\n  " +
                                                                  label + "w1 w2 w3\n");
  const std::vector<std::string> lines = lines_of(
      run_command("printf '\\357\\273\\277(3 (2 w1) (4 w2))\\nw3\\n' | '" WINDROW_BIN "'/" + predict + "--json"));
  ASSERT_EQ(lines.size(), 2u);
  expect_has_all(lines[0], {"\"probabilities\"", "\"text\": \"(3"});  // without the byte order mark
  expect_lacks(lines[0], "\"parts\"");
  expect_has(run(predict + "--json --parts --text w3").out, "\"parts\": [{");
  // Brackets are words, except for those of a tree.
  const std::vector<std::string> phrases = lines_of(run(predict + "--parts --text '(w1 (really)) w2'"));
  ASSERT_EQ(phrases.size(), 14u);
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
    expect_match(refusal_of(run(predict + "--text '" + text + "'")), "windrow: input 1:1:.*\n");
  }
}

/// Also where the trees that the seed draws would have no label but a neutral one.
TEST_F(Predictions, LabelTextsByTwoClasses) {
  const std::string train = "tree-lstm --classes 2 --hidden 8 --embedding 8 --samples 60 --epochs 1 --seed ";
  for (const std::string seed : {"1", "2", "3", "4"}) {
    const std::string trained = saved_model(train + seed, seed);
    expect_match(output("windrow predict " + trained + "--text 'w1 w2'"),
                 "(negative|positive) [01]\\.[0-9]{2}  w1 w2\n");
    output("windrow export " + trained + "--to " + in(seed + ".file"));
  }
}

TEST_F(Predictions, LabelWords) {
  // A model that has learned nothing, too, answers with labels that have a name.
  const std::string model = "bilstm-char --hidden 8 --samples 64 --epochs 1 --rate 1e-9 ";
  const std::string plain = saved_model(model), crf = saved_model(model + "--crf", "crf");
  for (const std::string& trained : {plain, crf}) {
    expect_match(output("windrow predict " + trained + "--text 'one two'"),
                 "[^ ]+ [01]\\.[0-9]{2}  one\n[^ ]+ [01]\\.[0-9]{2}  two\n");
  }
  expect_has(run("windrow train " + model + "--resume --save " + crf).err,
             ": a model with switches [\"crf\"]; expected none, as the flags say\n");
  expect_has(run("windrow train " + model + "--crf --resume --save " + plain).err,
             ": a model without switches; expected [\"crf\"], as the flags say\n");
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
  const std::string parser = saved_model("parser --hidden 8 --samples 64 --epochs 1");
  const std::string file = (folder / "in.conllu").string();
  std::ofstream(file) << "# newdoc\n\n# sent_id = 1\n# text = don't go\n0.1\tso\t_\t_\t_\t_\t_\t_\t_\t_\n"
                         "1-2\tdon't\t_\t_\t_\t_\t_\t_\t_\t_\n"
                         "1\tdo\tdo\tAUX\tVB\tMood=Imp\t_\t_\t_\t_\n2\tn't\tnot\tPART\tRB\t_\t_\t_\t_\tX=1\n"
                         "2.1\tyou\tyou\tPRON\t_\t_\t_\t_\t3:nsubj\t_\n"
                         "2.2\tghost\t_\t_\t_\t_\t_\t_\t0:root\tX=2\n"
                         "3\tgo\tgo\t_\tVB\t_\t99\troot\t0:root\t_\n"
                         "3.1\tnow\t_\t_\t_\t_\t_\t_\t3:advmod\t_\n\n"
                         "1\tone\t_\tNUM\t_\t_\t_\t_\t_\t_\n";
  const std::string predict = "'" WINDROW_BIN "/windrow' predict " + parser;
  const std::string parsed = output_of(run_command(predict + " < '" + file + "'"));
  expect_match(
      parsed,
      "# sent_id = 1\n# text = don't go\n0\\.1\tso\t_\t_\t_\t_\t_\t_\t_\t_\n1-2\tdon't\t_\t_\t_\t_\t_\t_\t_\t_\n"
      "1\tdo\tdo\tAUX\tVB\tMood=Imp\t[023]\t[a-z:]+\t_\t_\n2\tn't\tnot\tPART\tRB\t_\t[013]\t[a-z:]+\t_\tX=1\n"
      "2\\.1\tyou\tyou\tPRON\t_\t_\t_\t_\t3:nsubj\t_\n2\\.2\tghost\t_\t_\t_\t_\t_\t_\t0:root\tX=2\n"
      "3\tgo\tgo\t(_|[A-Z]+)\tVB\t_\t[012]\t[a-z:]+\t_\t_\n3\\.1\tnow\t_\t_\t_\t_\t_\t_\t3:advmod\t_\n\n"
      "1\tone\t_\tNUM\t_\t_\t0\troot\t_\t_\n\n");
  EXPECT_EQ(run_command(predict + " < '" + file + "' | " + predict).out, parsed) << "its own output is an input";
  expect_has(run_command(predict + " --json < '" + file + "'").out, "\"text\": \"do n't go\"");
  std::ofstream(file) << "1\tone\t_\tNUM\t_\t_\t_\t_\t_\t_\n\n3\tone\t_\tNUM\t_\t_\t_\t_\t_\t_\n";
  expect_failed(run_command(predict + " < '" + file + "'"),
                "windrow: input 2:1:1: line begins with '3'; expected 1, the next word\n");
}

TEST_F(Predictions, ParseSentencesAndFindTheValuesOfLists) {
  const std::string parser = saved_model("parser --hidden 8 --samples 64 --epochs 1");
  expect_match(output("windrow predict " + parser + "--text 'one two|NOUN'"),
               "# text = one two\\|NOUN\n1\tone\t_\t_\t_\t_\t[02]\t[a-z:]+\t_\t_\n"
               "2\ttwo\t_\tNOUN\t_\t_\t[01]\t[a-z:]+\t_\t_\n\n");
  EXPECT_EQ(run("windrow predict " + parser + " --text one --text 'two|'").err,
            "windrow: input 2: 'two|' has no tag; expected word|TAG\n");
  expect_has(output("windrow predict " + parser + "--json --text 'one two|NOUN'"), R"({"form": "two","head": )");
  const std::string lists = saved_model("listops --hidden 8 --samples 64 --epochs 1", "lists");
  expect_match(output("windrow predict " + lists + "--parts --text '[MAX 2 [MIN 4 7 ] ]'"),
               "[0-9] [01]\\.[0-9]{2}  \\[MAX 2 \\[MIN 4 7 \\] \\]\n"
               "  [0-9] [01]\\.[0-9]{2}  \\[MIN 4 7 \\]\n"
               "  [0-9] [01]\\.[0-9]{2}  \\[MAX 2 \\[MIN 4 7 \\] \\]\n");
}

/// A language model that was trained a little, with words that it does not know.
class LanguageModels : public Programs {
 protected:
  LanguageModels() {
    std::filesystem::create_directory(folder / "data");
    for (const char* file : {"train.txt", "valid.txt"}) {
      std::ofstream to(folder / "data" / file);
      for (int i = 0; i < 150; ++i)
        to << "the cat" << i % 7 << " saw <unk> dog" << i % 40 << " .\n"
           << "we sat\n";
    }
  }
  void train(const std::string& model) {
    saved_model(model + " --hidden 8 --embedding 8 --vocabulary 40 --epochs 2 --batch 16 --optimiser adam --rate 0.02" +
                " --data " + data);
  }

  const std::string data = in("data"), trained = in("run");
  const std::string sample = "windrow sample " + trained;
};

TEST_F(LanguageModels, ScoreLinesAsAnEvaluationDoes) {
  train("var-lstm");
  const Outcome evaluated = run("windrow eval " + trained + " --json --data " + data);
  const double loss = field(evaluated.out, "validation_loss");
  const std::string predict = "windrow predict " + trained, file = " <'" + (folder / "data/valid.txt").string() + "'";
  const std::vector<std::string> lines = lines_of(run(predict + " --json" + file));
  ASSERT_EQ(lines.size(), 300u);
  double sum = 0, tokens = 0, unknown = 0;
  for (const std::string& line : lines) {
    sum += field(line, "log_probability");
    tokens += field(line, "tokens");
    unknown += field(line, "unknown");
    EXPECT_NEAR(field(line, "perplexity"), std::exp(-field(line, "log_probability") / field(line, "tokens")), 1e-5);
  }
  EXPECT_EQ(tokens, 150 * 7 + 150 * 3);
  EXPECT_GT(unknown, 0);
  EXPECT_NEAR(-sum / tokens, loss, 1e-5);
  const std::vector<std::string> plain = lines_of(run(predict + file));
  ASSERT_EQ(plain.size(), 300u);
  expect_match(plain[1], "-[0-9]+\\.[0-9]{2} for 3 tokens, perplexity [0-9.]+  we sat");
  EXPECT_EQ(run(predict + " --beam 2 --text we").err,
            "windrow: a beam of 2; expected 1, because the model scores texts\n");
}

TEST_F(LanguageModels, PrintALineForEachLineWhateverBytesItHas) {
  train("fixed-lstm --tied --steps 16");
  const std::string bytes = "printf 'we\\0 sat\\n\\n\\377 the \\302\\205\\r\\n' | '" WINDROW_BIN "'/windrow predict ";
  const Outcome outcome = run_command(bytes + trained);
  expect_failed(outcome, "windrow: input 2: no word; expected a sentence\n");
  const std::vector<std::string> lines = lines_of({outcome.out, "", 0});
  ASSERT_EQ(lines.size(), 3u) << outcome.out;
  expect_has(lines[0], " for 3 tokens (1 unknown), perplexity ");
  EXPECT_TRUE(lines[0].ends_with(std::string("  we\0 sat", 9))) << lines[0];
  EXPECT_EQ(lines[1], "");
  expect_has(lines[2], " for 4 tokens (2 unknown), perplexity ");
}

TEST_F(LanguageModels, WriteTheSameSentencesForASeedWithAnyNumberOfWorkers) {
  train("var-lstm");
  const std::string draw = sample + " --lines 300 --temperature 1.5 --max-words 9 --start 'the  zebra'";
  const std::vector<std::string> lines = lines_of(run(draw + " --workers 1"));
  EXPECT_EQ(lines_of(run(draw + " --workers 2")), lines);
  EXPECT_NE(lines_of(run(draw + " --seed 2")), lines);
  ASSERT_EQ(lines.size(), 300u);
  const std::regex sentence("the zebra( (the|cat[0-6]|saw|<unk>|dog[0-9]+|\\.|we|sat)){0,9}");
  for (const std::string& line : lines) expect_match(line, sentence);
  const std::vector<std::string> best = lines_of(run(sample + " --lines 2 --temperature 0"));
  ASSERT_EQ(best.size(), 2u);
  EXPECT_EQ(best[0], best[1]);
  EXPECT_EQ(lines_of(run(sample)).size(), 10u);
  EXPECT_EQ(lines_of(run(sample + " --lines 1 --start \"$(printf 'we\\nsat')\"")).size(), 1u);
}

TEST_F(LanguageModels, AreAskedForSentencesThatCanBeDrawn) {
  train("var-lstm");
  for (const std::string wrong : {"--temperature -1", "--temperature nan", "--temperature 1e999", "--temperature ''",
                                  "--lines -1", "--lines 0", "--max-words 0", "--seed -1"}) {
    const Outcome outcome = run(sample + " " + wrong);
    EXPECT_EQ(outcome.out, "");
    expect_match(refusal_of(outcome), "windrow: --[a-z-]+: '.*; expected a .*\n");
  }
  const std::string lists = saved_model("listops --hidden 4 --samples 16 --epochs 1", "lists");
  expect_refused(run("windrow sample " + lists),
                 "windrow: this model samples no texts; expected one of fixed-lstm, var-lstm\n");
}

}  // namespace
}  // namespace windrow::testing
