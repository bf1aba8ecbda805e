// windrow predict and windrow sample with language models: scores of sentences, and sentences that are drawn.
#include <cmath>
#include <regex>

#include "tests/programs/programs.h"

namespace windrow::testing {
namespace {

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
    ASSERT_EQ(run("windrow train " + model + " --hidden 8 --embedding 8 --vocabulary 40 --epochs 2 --batch 16 " +
                  "--optimiser adam --rate 0.02 --data " + data + " --save " + trained)
                  .err,
              "");
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
  EXPECT_TRUE(std::regex_match(plain[1], std::regex("-[0-9]+\\.[0-9]{2} for 3 tokens, perplexity [0-9.]+  we sat")))
      << plain[1];
  EXPECT_EQ(run(predict + " --beam 2 --text we").err,
            "windrow: a beam of 2; expected 1, because the model scores texts\n");
}

TEST_F(LanguageModels, PrintALineForEachLineWhateverBytesItHas) {
  train("fixed-lstm --tied --steps 16");
  const std::string bytes = "printf 'we\\0 sat\\n\\n\\377 the \\302\\205\\r\\n' | '" WINDROW_BIN "'/windrow predict ";
  const Outcome outcome = run_command(bytes + trained);
  EXPECT_EQ(outcome.err, "windrow: input 2: no word; expected a sentence\n");
  EXPECT_EQ(outcome.status, 2);
  const std::vector<std::string> lines = lines_of({outcome.out, "", 0});
  ASSERT_EQ(lines.size(), 3u) << outcome.out;
  EXPECT_NE(lines[0].find(" for 3 tokens (1 unknown), perplexity "), std::string::npos) << lines[0];
  EXPECT_TRUE(lines[0].ends_with(std::string("  we\0 sat", 9))) << lines[0];
  EXPECT_EQ(lines[1], "");
  EXPECT_NE(lines[2].find(" for 4 tokens (2 unknown), perplexity "), std::string::npos) << lines[2];
}

TEST_F(LanguageModels, WriteTheSameSentencesForASeedWithAnyNumberOfWorkers) {
  train("var-lstm");
  const std::string draw = sample + " --lines 300 --temperature 1.5 --max-words 9 --start 'the  zebra'";
  const std::vector<std::string> lines = lines_of(run(draw + " --workers 1"));
  EXPECT_EQ(lines_of(run(draw + " --workers 2")), lines);
  EXPECT_NE(lines_of(run(draw + " --seed 2")), lines);
  ASSERT_EQ(lines.size(), 300u);
  const std::regex sentence("the zebra( (the|cat[0-6]|saw|<unk>|dog[0-9]+|\\.|we|sat)){0,9}");
  for (const std::string& line : lines) EXPECT_TRUE(std::regex_match(line, sentence)) << line;
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
    EXPECT_EQ(outcome.status, 2) << wrong;
    EXPECT_EQ(outcome.out, "");
    EXPECT_TRUE(std::regex_match(outcome.err, std::regex("windrow: --[a-z-]+: '.*; expected a .*\n"))) << outcome.err;
  }
  const std::string lists = saved_model("listops --hidden 4 --samples 16 --epochs 1", "lists");
  expect_refused(run("windrow sample " + lists),
                 "windrow: this model samples no texts; expected one of fixed-lstm, var-lstm\n");
}

}  // namespace
}  // namespace windrow::testing
