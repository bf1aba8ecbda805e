// windrow eval and windrow predict: a saved model has the scores that its training printed.
#include "tests/programs/programs.h"
#include "windrow/models/datasets.h"
#include "windrow/models/internal/parallel_text.h"
#include "windrow/models/workload.h"

namespace windrow::testing {
namespace {

/// The values of the last line of a training, without its throughput: percentages, or a perplexity.
std::vector<std::string> scores_of_training(const Outcome& outcome) {
  const auto columns = words_without_units(outcome.out.substr(outcome.out.rfind('\n', outcome.out.size() - 2)));
  EXPECT_GE(columns.size(), 4u) << outcome.out;  // the epoch, its loss, one value or more, and the throughput
  return columns.size() < 4 ? columns : std::vector(columns.begin() + 2, columns.end() - 1);
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

/// Models are saved in the folder `run`, and data lie in the folder `data`.
class SavedModels : public Programs {
 protected:
  SavedModels() { std::filesystem::create_directory(folder / "data"); }
  void write(const std::string& name, const std::string& text) const { std::ofstream(folder / "data" / name) << text; }
  Outcome train(const std::string& flags) const {
    const Outcome trained = windrow_there("train " + flags + " --save run");
    EXPECT_EQ(trained.err, "") << flags;
    return trained;
  }
  Outcome train_on_data(const std::string& flags) const {
    return train(flags + " --hidden 8 --embedding 8 --epochs 1 --data data");
  }
  Outcome eval() const { return windrow_there("eval run --data data"); }
  void expect_scores_of(const Outcome& trained) const {
    const std::vector<std::string> scores = scores_of_evaluation(eval());
    EXPECT_EQ(scores, scores_of_training(trained));
    EXPECT_GE(scores.size(), 1u) << trained.out;
  }
};

TEST_F(SavedModels, AreScoredAgainFromTheirCheckpoints) {
  for (const std::string model :
       {"tree-lstm --embedding 8", "tree-lstm --classes 2 --cell child-sum --embedding 8", "tree-fc --leaves 8",
        "fixed-lstm --embedding 8 --vocabulary 50", "var-lstm --embedding 8 --vocabulary 50", "bilstm --embedding 8",
        "bilstm-char --embedding 8 --character-hidden 8", "listops", "dag --embedding 8", "lattice-lstm --embedding 8",
        "seq2seq --embedding 8", "parser --embedding 8", "mlp"}) {
    std::filesystem::remove_all(folder / "run");
    const Outcome trained = train(model + " --hidden 8 --samples 40 --epochs 1 --average 0.5");
    EXPECT_EQ(scores_of_evaluation(windrow_there("eval run")), scores_of_training(trained)) << model;
  }
}

TEST_F(SavedModels, AreScoredWithoutTheFileOfTheTrainingSet) {
  const auto score = [&](const std::string& model, auto generate) {
    SCOPED_TRACE(model);
    std::filesystem::remove_all(folder / "run");
    const std::vector<std::string> files = workload_kind(model.substr(0, model.find(' '))).files;
    for (const std::size_t i : {0, 1}) write(files[i], generate(40, i));
    const Outcome trained = train_on_data(model);
    std::filesystem::remove(folder / "data" / files[0]);
    expect_scores_of(trained);
  };
  score("tree-lstm", generate_treebank);
  score("tree-lstm --classes 2", generate_treebank);
  score("var-lstm", generate_sentences);
  score("parser", generate_conllu);
}

/// The validation set is the file that it was for the training, whatever else the folder has.
TEST_F(SavedModels, AreScoredOnTheFileThatValidatedThem) {
  write("valid.txt", generate_sentences(60, 1));
  write("test.txt", generate_sentences(60, 2));
  const Outcome trained = train_on_data("var-lstm --train valid.txt --valid test.txt");
  expect_scores_of(trained);
  write("train.txt", generate_sentences(60, 3));
  expect_scores_of(trained);
  for (const char* const file : {"train.txt", "valid.txt"}) std::filesystem::remove(folder / "data" / file);
  expect_scores_of(trained);
  std::filesystem::remove(folder / "data/test.txt");
  EXPECT_EQ(eval().err, "windrow: data/test.txt: no such file; expected a file of sentences, one per line\n");
}

/// A label that the training set lacks is none of the answers, so no answer is right there.
TEST_F(SavedModels, HaveNoAnswerRightForALabelThatTheyDoNotKnow) {
  std::string sentences;
  for (int i = 1; i <= 40; ++i)
    sentences += i % 10 == 0 ? "a|O zed|I-LOC\n" : "a|O zed|I-PER\n";  // each tenth validates
  write("all.txt", sentences);
  for (const std::string crf : {"", " --crf"}) {
    std::filesystem::remove_all(folder / "run");
    const Outcome trained =
        train("bilstm --hidden 8 --embedding 8 --epochs 20 --batch 4 --optimiser adam --rate 0.01 " +
              std::string("--data data") + crf);
    expect_scores_of(trained);
    expect_has(eval().out, "accuracy 50.0 %\nentity F1 0.0 %\n");
  }
}

/// A folder may hold more languages than the model translates.
TEST_F(SavedModels, AreScoredOnTheLanguagesThatTheyTranslate) {
  for (const std::string part : {"train", "valid"}) {
    const ParallelText text = generate_parallel_text(40, part == "train" ? 1 : 2);
    write(part + ".en", text.source);
    for (const char* language : {".de", ".nl"}) write(part + language, text.target);
  }
  const std::string train = "train seq2seq --hidden 8 --embedding 8 --epochs 1 --data data --save run";
  EXPECT_EQ(
      windrow_there(train + " --source en").err,
      "windrow: data: 3 files train.LANGUAGE; expected two, or the names of the source and the target language\n");
  expect_scores_of(train_on_data("seq2seq --source en --target de"));
  EXPECT_EQ(windrow_there(train + " --source nl --target en --resume").err,
            "windrow: run/000000000001.safetensors: a model with source_language \"en\"; expected \"nl\", as the flags "
            "say\n");
  std::filesystem::remove(folder / "data/valid.de");
  EXPECT_EQ(eval().err, "windrow: data: no valid.de; expected one of valid.en, valid.nl\n");
  EXPECT_EQ(windrow_there("predict run --text na").err, "");
}

/// The parts of parallel text are named without the language: in the folder of --data, or by a path.
TEST_F(SavedModels, OfTranslationsTakeTheirPartsByPaths) {
  for (const auto& [part, seed] : {std::pair("train", 1), std::pair("valid", 2), std::pair("test", 3)}) {
    const ParallelText text = generate_parallel_text(40, static_cast<std::uint64_t>(seed));
    write(part + std::string(".de"), text.source);
    write(part + std::string(".en"), text.target);
  }
  const std::string train = "train seq2seq --hidden 8 --embedding 8 --epochs 1 ", data = (folder / "data").string();
  const Outcome trained = train_on_data("seq2seq");
  for (const std::string& flags : {"--data data --train '" + data + "/train' --valid valid",
                                   std::string("--data data --train data/train --valid data/valid"),
                                   std::string("--train data/train --valid data/valid"),
                                   "--train '" + data + "/train' --valid '" + data + "/valid'"}) {
    const Outcome same = windrow_there(train + flags);
    EXPECT_EQ(same.err, "") << flags;
    EXPECT_EQ(scores_of_training(same), scores_of_training(trained)) << flags;
  }
  EXPECT_EQ(windrow_there(train + "--data data --train data/valid --valid valid").err,
            "windrow: data: the training set and the validation set are data/valid.LANGUAGE; expected two sets, by "
            "--train and --valid\n");
  EXPECT_EQ(windrow_there(train + "--data data --train data/tran").err,
            "windrow: data/data: 0 files tran.LANGUAGE; expected two, such as tran.de and tran.en\n");

  EXPECT_EQ(scores_of_evaluation(windrow_there("eval run --data data/valid")), scores_of_training(trained));
  const auto expect_test_set = [&](const std::string& command) {
    const std::string scored = output_of(windrow_there(command));
    expect_has(scored, " of test.de and test.en\n");
  };
  expect_test_set("eval run --data data/test");
  expect_test_set("eval run --data '" + data + "/test'");
  EXPECT_EQ(run_command("cd '" + data + "' && '" WINDROW_BIN "'/windrow eval ../run --data test").err, "");
  EXPECT_EQ(windrow_there("eval run --data data/tset").err,
            "windrow: --data: 'data/tset' is neither a folder nor a file; expected one of both; see windrow eval "
            "--help\n");

  ASSERT_EQ(windrow_there(train + "--data data --train train --valid data/test --save other").err, "");
  const std::string resumed = output("windrow resume " + in("other") + "--epochs 2");
  expect_has(resumed, " of train.de and train.en, validating on 40 of test.de and test.en\n");
  expect_test_set("eval other --data data");
}

TEST_F(SavedModels, TranslateTexts) {
  const std::string run_folder = saved_model("seq2seq --hidden 8 --embedding 8 --samples 40 --epochs 1");
  const Outcome translated = run("windrow predict " + run_folder + " --text 'la bolok' --text na --beam 3 --json");
  EXPECT_EQ(translated.err, "");
  const std::vector<std::string> lines = lines_of(translated);
  ASSERT_EQ(lines.size(), 2u);
  const std::regex record(R"(\{"log_probability": -[0-9.e-]+,"text": "la bolok","translation": "[^"]*"\})");
  expect_match(lines[0], record);
  const Outcome blank = run("windrow predict " + run_folder + " --text na --text ' ' --text na");
  EXPECT_EQ(blank.err, "windrow: input 2: no word; expected a sentence\n");
  const std::vector<std::string> three = lines_of({blank.out, "", 0});
  ASSERT_EQ(three.size(), 3u);
  EXPECT_EQ(three[1], "");
  EXPECT_EQ(three[0], three[2]);
}

TEST_F(SavedModels, PredictForAllLinesThatTheyCanReadAndNameTheOthers) {
  const std::string run_folder = saved_model("listops --hidden 4 --samples 16 --epochs 1"), file = in("lines");
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
  expect_match(plain.err, errors);
  const Outcome json = run_command(predict + " --json <" + file);
  expect_failed(json, plain.err);
  const std::vector<std::string> labelled = lines_of({plain.out, "", 0}), records = lines_of({json.out, "", 0});
  ASSERT_EQ(labelled.size(), 150u);
  ASSERT_EQ(records.size(), 150u);
  for (std::size_t i = 1; i <= 150; ++i) {
    const std::string &line = labelled[i - 1], &record = records[i - 1], number = std::to_string(i);
    const std::string text = "[MAX " + std::to_string(i % 10) + " ]";
    if (bad.contains(i)) {
      EXPECT_EQ(line, "");
      EXPECT_EQ(field(record, "line"), i);
      expect_has(record, "\"error\": \"input " + number + ":");
    } else {
      EXPECT_TRUE(line.ends_with("  " + text)) << line;
      expect_has(record, "\"text\": \"" + text + "\"");
    }
  }
  const Outcome bytes = run_command(predict + " --json --text \"$(printf '\\377')\" --text '[MAX 1 ]'");
  EXPECT_EQ(bytes.err, "windrow: input 1: not UTF-8; expected UTF-8 for --json\n");
  expect_has(bytes.out, "[MAX 1 ]");
  EXPECT_EQ(run_command(predict + " <" + run_folder).err,
            "windrow: cannot read standard input; expected lines of text\n");
  // An answer comes before the end of the input: this input ends only after it.
  ASSERT_EQ(run_command("mkfifo " + in("answers")).status, 0);
  const std::string answers = in("answers");
  const Outcome early = run_command("{ (head -n 64 " + file + "; timeout 30 head -n 2 " + answers + " >&2) | " +
                                    predict + " 2>&1 >" + answers + " | grep -v input; }");
  expect_match(early.err, "\n[0-9] [01]\\.[0-9]{2}  \\[MAX 2 \\]\n");
}

TEST_F(SavedModels, PredictWithTheAccuracyThatTrainingPrinted) {
  const std::string text = windrow::generate_tagged_sentences(200, 1);
  write("all.txt", text);
  const std::string sizes = " --hidden 16 --embedding 16 --character-hidden 16";
  const Outcome trained =
      train("bilstm-char" + sizes + " --optimiser adam --rate 0.01 --batch 16 --epochs 4 --data data");
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
  const Outcome predicted = windrow_there("predict run < words.txt");
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
