// windrow eval and windrow predict: a saved model has the scores that its training printed.
#include <regex>
#include <set>

#include "tests/programs/programs.h"
#include "windrow/models/conllu.h"
#include "windrow/models/parallel_text.h"
#include "windrow/models/sentences.h"
#include "windrow/models/treebank.h"
#include "windrow/models/workload.h"

namespace windrow::testing {
namespace {

using SavedModels = Programs;

/// The values of the last line of a training, without its throughput: percentages, or a perplexity.
std::vector<std::string> scores_of_training(const Outcome& outcome) {
  std::istringstream columns(outcome.out.substr(outcome.out.rfind('\n', outcome.out.size() - 2)));
  std::string epoch, loss;
  columns >> epoch >> loss;
  std::vector<std::string> scores;
  for (std::string word; columns >> word;) {
    if (word != "%") scores.push_back(word);
  }
  scores.pop_back();  // the throughput
  return scores;
}

/// The values that an evaluation printed.
std::vector<std::string> scores_of_evaluation(const Outcome& outcome) {
  std::vector<std::string> scores;
  std::smatch value;
  for (const std::string& line : lines_of(outcome)) {
    if (std::regex_match(line, value, std::regex("[^,:]* ([0-9.]+)( %)?"))) scores.push_back(value[1]);
  }
  return scores;
}

TEST_F(SavedModels, AreScoredAgainFromTheirCheckpoints) {
  for (const std::string model :
       {"tree-lstm --embedding 8", "tree-lstm --classes 2 --cell child-sum --embedding 8", "tree-fc --leaves 8",
        "fixed-lstm --embedding 8 --vocabulary 50", "var-lstm --embedding 8 --vocabulary 50", "bilstm --embedding 8",
        "bilstm-char --embedding 8 --character-hidden 8", "listops", "dag --embedding 8", "lattice-lstm --embedding 8",
        "seq2seq --embedding 8", "parser --embedding 8", "mlp"}) {
    const std::string run_folder = (folder / model).string();
    const Outcome trained =
        run("windrow train " + model + " --hidden 8 --samples 40 --epochs 1 --average 0.5 --save '" + run_folder + "'");
    ASSERT_EQ(trained.err, "") << model;
    const std::vector<std::string> scores = scores_of_evaluation(run("windrow eval '" + run_folder + "'"));
    EXPECT_EQ(scores, scores_of_training(trained)) << model;
    EXPECT_GE(scores.size(), 1u) << trained.out;
  }
}

TEST_F(SavedModels, AreScoredWithoutTheFileOfTheTrainingSet) {
  const std::string data = (folder / "data").string();
  std::filesystem::create_directory(data);
  const auto score = [&](const std::string& model, auto generate) {
    const std::vector<std::string> files = workload_kind(model.substr(0, model.find(' '))).files;
    for (const std::size_t i : {0, 1}) std::ofstream(data + "/" + files[i]) << generate(40, i);
    const std::string run_folder = (folder / model).string();
    const Outcome trained = run("windrow train " + model + " --hidden 8 --embedding 8 --epochs 1 --data '" + data +
                                "' --save '" + run_folder + "'");
    ASSERT_EQ(trained.err, "") << model;
    std::filesystem::remove(data + "/" + files[0]);
    const Outcome scored = run("windrow eval '" + run_folder + "' --data '" + data + "'");
    EXPECT_EQ(scored.err, "");
    EXPECT_EQ(scores_of_evaluation(scored), scores_of_training(trained)) << model;
  };
  const auto trees = [](std::size_t samples, std::uint64_t seed) { return generate_treebank(samples, seed); };
  score("tree-lstm", trees);
  score("tree-lstm --classes 2", trees);
  score("var-lstm", [](std::size_t samples, std::uint64_t seed) { return generate_sentences(samples, seed); });
  score("parser", [](std::size_t samples, std::uint64_t seed) { return generate_conllu(samples, seed); });
}

/// The validation set is the file that it was for the training, whatever else the folder has.
TEST_F(SavedModels, AreScoredOnTheFileThatValidatedThem) {
  const std::string data = (folder / "data").string(), run_folder = (folder / "run").string();
  std::filesystem::create_directory(data);
  for (const auto& [name, seed] : {std::pair("valid.txt", 1), std::pair("test.txt", 2)}) {
    std::ofstream(data + "/" + name) << generate_sentences(60, static_cast<std::uint64_t>(seed));
  }
  const Outcome trained = run("windrow train var-lstm --hidden 8 --embedding 8 --epochs 1 --data '" + data +
                              "' --train valid.txt --valid test.txt --save '" + run_folder + "'");
  ASSERT_EQ(trained.err, "");
  const std::string eval = "windrow eval '" + run_folder + "' --data '" + data + "'";
  EXPECT_EQ(scores_of_evaluation(run(eval)), scores_of_training(trained));
  std::ofstream(data + "/train.txt") << generate_sentences(60, 3);
  EXPECT_EQ(scores_of_evaluation(run(eval)), scores_of_training(trained));
  std::filesystem::remove(data + "/train.txt");
  std::filesystem::remove(data + "/valid.txt");
  EXPECT_EQ(scores_of_evaluation(run(eval)), scores_of_training(trained));
  std::filesystem::remove(data + "/test.txt");
  EXPECT_EQ(run(eval).err,
            "windrow: " + data + "/test.txt: no such file; expected a file of sentences, one per line\n");
}

/// A label that the training set lacks is none of the answers, so no answer is right there.
TEST_F(SavedModels, HaveNoAnswerRightForALabelThatTheyDoNotKnow) {
  const std::string data = (folder / "data").string(), run_folder = (folder / "run").string();
  std::filesystem::create_directory(data);
  std::ofstream all(data + "/all.txt");
  for (int i = 1; i <= 40; ++i) all << "a|O zed|I-" << (i % 10 == 0 ? "LOC" : "PER") << "\n";  // each tenth validates
  all.close();
  for (const char* const crf : {"", " --crf"}) {
    const Outcome trained =
        run("windrow train bilstm" + std::string(crf) + " --hidden 8 --embedding 8 --epochs 20 " +
            "--batch 4 --optimiser adam --rate 0.01 --data '" + data + "' --save '" + run_folder + "'");
    ASSERT_EQ(trained.err, "");
    const Outcome scored = run("windrow eval '" + run_folder + "' --data '" + data + "'");
    EXPECT_EQ(scores_of_evaluation(scored), scores_of_training(trained));
    EXPECT_NE(scored.out.find("accuracy 50.0 %\nentity F1 0.0 %\n"), std::string::npos) << scored.out;
    std::filesystem::remove_all(run_folder);
  }
}

TEST_F(SavedModels, AnswerWithLabelsThatHaveANameFromTheStart) {
  for (const char* const crf : {"", " --crf"}) {
    for (int seed = 1; seed <= 4; ++seed) {
      const std::string run_folder = "'" + (folder / (std::to_string(seed) + crf)).string() + "'";
      ASSERT_EQ(run("windrow train bilstm" + std::string(crf) + " --samples 16 --hidden 4 --embedding 4 --rate 1e-9 " +
                    "--epochs 1 --seed " + std::to_string(seed) + " --save " + run_folder)
                    .err,
                "");
      const Outcome told = run("windrow predict " + run_folder + " --text 'one two three four five'");
      EXPECT_EQ(told.err, "");
      EXPECT_TRUE(std::regex_match(told.out, std::regex("(\\S+ [01]\\.\\d\\d  \\w+\n){5}"))) << told.out;
    }
  }
}

/// A folder may hold more languages than the model translates.
TEST_F(SavedModels, AreScoredOnTheLanguagesThatTheyTranslate) {
  const std::string data = (folder / "data").string(), run_folder = (folder / "run").string();
  std::filesystem::create_directory(data);
  for (const auto& [part, seed] : {std::pair("train", 1), std::pair("valid", 2)}) {
    const ParallelText text = generate_parallel_text(40, static_cast<std::uint64_t>(seed));
    std::ofstream(data + "/" + part + ".en") << text.source;
    for (const char* language : {".de", ".nl"}) std::ofstream(data + "/" + part + language) << text.target;
  }
  const std::string train =
      "windrow train seq2seq --hidden 8 --embedding 8 --epochs 1 --data '" + data + "' --save '" + run_folder + "'";
  EXPECT_EQ(run(train + " --source en").err,
            "windrow: " + data +
                ": 3 files train.LANGUAGE; expected two, or the names of the source and the target "
                "language\n");
  const Outcome trained = run(train + " --source en --target de");
  ASSERT_EQ(trained.err, "");
  const std::string eval = "windrow eval '" + run_folder + "' --data '" + data + "'";
  EXPECT_EQ(scores_of_evaluation(run(eval)), scores_of_training(trained));
  EXPECT_EQ(run(train + " --source nl --target en --resume").err,
            "windrow: " + run_folder +
                "/000000000001.safetensors: a model with source_language \"en\"; expected \"nl\", as the flags say\n");
  std::filesystem::remove(data + "/valid.de");
  EXPECT_EQ(run(eval).err, "windrow: " + data + ": no valid.de; expected one of valid.en, valid.nl\n");
  EXPECT_EQ(run("windrow predict '" + run_folder + "' --text na").err, "");
}

/// The parts of parallel text are named without the language: in the folder of --data, or by a path.
TEST_F(SavedModels, OfTranslationsTakeTheirPartsByPaths) {
  std::filesystem::create_directory(folder / "mt");
  for (const auto& [part, seed] : {std::pair("train", 1), std::pair("valid", 2), std::pair("test", 3)}) {
    const ParallelText text = generate_parallel_text(40, static_cast<std::uint64_t>(seed));
    std::ofstream(folder / "mt" / (part + std::string(".de"))) << text.source;
    std::ofstream(folder / "mt" / (part + std::string(".en"))) << text.target;
  }
  const auto there = [&](const std::string& command) {
    return run_command("cd '" + folder.string() + "' && '" WINDROW_BIN "'/windrow " + command);
  };
  const std::string train = "train seq2seq --hidden 8 --embedding 8 --epochs 1 ", mt = (folder / "mt").string();
  const Outcome trained = there(train + "--data mt --save run");
  ASSERT_EQ(trained.err, "");
  for (const std::string& flags :
       {"--data mt --train '" + mt + "/train' --valid valid",
        std::string("--data mt --train mt/train --valid mt/valid"), std::string("--train mt/train --valid mt/valid"),
        "--train '" + mt + "/train' --valid '" + mt + "/valid'"}) {
    const Outcome same = there(train + flags);
    EXPECT_EQ(same.err, "") << flags;
    EXPECT_EQ(scores_of_training(same), scores_of_training(trained)) << flags;
  }
  EXPECT_EQ(there(train + "--data mt --train mt/valid --valid valid").err,
            "windrow: mt: the training set and the validation set are mt/valid.LANGUAGE; expected two sets, by --train "
            "and --valid\n");
  EXPECT_EQ(there(train + "--data mt --train mt/tran").err,
            "windrow: mt/mt: 0 files tran.LANGUAGE; expected two, such as tran.de and tran.en\n");

  EXPECT_EQ(scores_of_evaluation(there("eval run --data mt/valid")), scores_of_training(trained));
  for (const std::string& data : {std::string("mt/test"), mt + "/test"}) {
    const Outcome scored = there("eval run --data '" + data + "'");
    EXPECT_EQ(scored.err, "") << data;
    EXPECT_NE(scored.out.find(" of test.de and test.en\n"), std::string::npos) << scored.out;
  }
  EXPECT_EQ(run_command("cd '" + mt + "' && '" WINDROW_BIN "'/windrow eval ../run --data test").err, "");
  EXPECT_EQ(there("eval run --data mt/tset").err,
            "windrow: --data: 'mt/tset' is neither a folder nor a file; expected one of both; see windrow eval "
            "--help\n");

  ASSERT_EQ(there(train + "--data mt --train train --valid mt/test --save other").err, "");
  const Outcome resumed = run("windrow resume '" + (folder / "other").string() + "' --epochs 2");
  EXPECT_EQ(resumed.err, "");
  EXPECT_NE(resumed.out.find(" of train.de and train.en, validating on 40 of test.de and test.en\n"), std::string::npos)
      << resumed.out;
  const Outcome in_folder = there("eval other --data mt");
  EXPECT_EQ(in_folder.err, "");
  EXPECT_NE(in_folder.out.find(" of test.de and test.en\n"), std::string::npos) << in_folder.out;
}

TEST_F(SavedModels, TranslateTexts) {
  const std::string run_folder = saved_model("seq2seq --hidden 8 --embedding 8 --samples 40 --epochs 1");
  const Outcome translated = run("windrow predict " + run_folder + " --text 'la bolok' --text na --beam 3 --json");
  EXPECT_EQ(translated.err, "");
  const std::vector<std::string> lines = lines_of(translated);
  ASSERT_EQ(lines.size(), 2u);
  const std::regex record(R"(\{"log_probability": -[0-9.e-]+,"text": "la bolok","translation": "[^"]*"\})");
  EXPECT_TRUE(std::regex_match(lines[0], record)) << lines[0];
  const Outcome blank = run("windrow predict " + run_folder + " --text na --text ' ' --text na");
  EXPECT_EQ(blank.err, "windrow: input 2: no word; expected a sentence\n");
  const std::vector<std::string> three = lines_of({blank.out, "", 0});
  ASSERT_EQ(three.size(), 3u);
  EXPECT_EQ(three[1], "");
  EXPECT_EQ(three[0], three[2]);
}

TEST_F(SavedModels, PrintALineForEachLineWhateverBytesItHas) {
  const std::string run_folder = saved_model("tree-lstm --hidden 4 --embedding 4 --samples 16 --epochs 1");
  const Outcome outcome = run_command(
      "printf 'a\\0b c\\n\\377 \\302\\205 x\\r\\ry\\n\\0\\n' | '" WINDROW_BIN "'/windrow predict " + run_folder);
  EXPECT_EQ(outcome.err, "");
  const std::vector<std::string> lines = lines_of(outcome);
  ASSERT_EQ(lines.size(), 3u) << outcome.out;
  EXPECT_TRUE(lines[0].ends_with(std::string("  a\0b c", 7))) << lines[0];
  EXPECT_TRUE(lines[1].ends_with("  \377 \302\205 x  y")) << lines[1];
  EXPECT_TRUE(lines[2].ends_with(std::string("  \0", 3))) << lines[2];
}

TEST_F(SavedModels, PredictForAllLinesThatTheyCanReadAndNameTheOthers) {
  const std::string run_folder = in("run"), file = in("lines");
  ASSERT_EQ(run("windrow train listops --hidden 4 --samples 16 --epochs 1 --save " + run_folder).err, "");
  const std::set<std::size_t> bad = {1, 40, 65, 150};
  std::ofstream lines(folder / "lines");
  std::string errors;
  for (std::size_t i = 1; i <= 150; ++i) {
    const std::string blank = i == 40 ? "" : "7";
    lines << (bad.contains(i) ? blank : "[MAX " + std::to_string(i % 10) + " ]\r") << (i < 150 ? "\n" : "");
    if (bad.contains(i)) errors += "windrow: input " + std::to_string(i) + "(:1:1)?: .*\n";
  }
  lines.close();
  const std::string predict = "'" WINDROW_BIN "'/windrow predict " + run_folder;
  const Outcome plain = run_command(predict + " <" + file);
  EXPECT_EQ(plain.status, 2);
  EXPECT_TRUE(std::regex_match(plain.err, std::regex(errors))) << plain.err;
  const std::vector<std::string> labelled = lines_of({plain.out, "", 0});
  ASSERT_EQ(labelled.size(), 150u);
  for (std::size_t i = 1; i <= 150; ++i) {
    const std::string& line = labelled[i - 1];
    if (bad.contains(i)) {
      EXPECT_EQ(line, "");
    } else {
      EXPECT_TRUE(line.ends_with("  [MAX " + std::to_string(i % 10) + " ]")) << line;
    }
  }
  const Outcome json = run_command(predict + " --json <" + file);
  EXPECT_EQ(json.status, 2);
  EXPECT_EQ(json.err, plain.err);
  const std::vector<std::string> records = lines_of({json.out, "", 0});
  ASSERT_EQ(records.size(), 150u);
  for (std::size_t i = 1; i <= 150; ++i) {
    const std::string& record = records[i - 1];
    if (bad.contains(i)) {
      EXPECT_EQ(field(record, "line"), i);
      EXPECT_NE(record.find("\"error\": \"input " + std::to_string(i) + ":"), std::string::npos) << record;
    } else {
      EXPECT_NE(record.find("\"text\": \"[MAX " + std::to_string(i % 10) + " ]\""), std::string::npos) << record;
    }
  }
  const Outcome bytes = run_command(predict + " --json --text \"$(printf '\\377')\" --text '[MAX 1 ]'");
  EXPECT_EQ(bytes.err, "windrow: input 1: not UTF-8; expected UTF-8 for --json\n");
  EXPECT_NE(bytes.out.find("[MAX 1 ]"), std::string::npos);
  EXPECT_EQ(run_command(predict + " <" + run_folder).err,
            "windrow: cannot read standard input; expected lines of text\n");
  // An answer comes before the end of the input: this input ends only after it.
  ASSERT_EQ(run_command("mkfifo " + in("answers")).status, 0);
  const std::string answers = in("answers");
  const Outcome early = run_command("{ (head -n 64 " + file + "; timeout 30 head -n 2 " + answers + " >&2) | " +
                                    predict + " 2>&1 >" + answers + " | grep -v input; }");
  EXPECT_TRUE(std::regex_match(early.err, std::regex("\n[0-9] [01]\\.[0-9]{2}  \\[MAX 2 \\]\n"))) << early.err;
}

TEST_F(SavedModels, PredictWithTheAccuracyThatTrainingPrinted) {
  std::filesystem::create_directory(folder / "data");
  const std::string text = windrow::generate_tagged_sentences(200, 1);
  std::ofstream(folder / "data/all.txt") << text;
  const std::string run_folder = in("run");
  const std::string sizes = " --hidden 16 --embedding 16 --character-hidden 16";
  const Outcome trained =
      run("windrow train bilstm-char" + sizes + " --optimiser adam --rate 0.01 --batch 16 --epochs 4 --data '" +
          (folder / "data").string() + "' --save " + run_folder);
  ASSERT_EQ(trained.err, "");
  std::ofstream words(folder / "words.txt");
  std::vector<std::string> tags;
  const std::vector<std::string> sentences = lines_of(Outcome{text, "", 0});
  for (std::size_t i = 9; i < sentences.size(); i += 10) {  // the validation set
    std::istringstream in(sentences[i] + "\n");
    const windrow::TaggedSentence sentence = windrow::read_tagged_sentences(in, "line").front();
    for (const std::string& word : sentence.words) words << word << ' ';
    words << '\n';
    tags.insert(tags.end(), sentence.tags.begin(), sentence.tags.end());
  }
  words.close();
  const Outcome predicted = run_command("'" WINDROW_BIN "'/windrow predict " + run_folder + " <" + in("words.txt"));
  std::vector<std::string> told;
  for (const std::string& line : lines_of(predicted)) {
    if (!line.empty()) told.push_back(line.substr(0, line.find(' ')));
  }
  ASSERT_EQ(told.size(), tags.size());
  EXPECT_GT(std::set(told.begin(), told.end()).size(), 2u) << "the model has learned something";
  double right = 0;
  for (std::size_t i = 0; i < tags.size(); ++i) right += told[i] == tags[i];
  EXPECT_NEAR(100 * right / static_cast<double>(tags.size()), std::stod(scores_of_training(trained).front()), 0.051);
}

}  // namespace
}  // namespace windrow::testing
