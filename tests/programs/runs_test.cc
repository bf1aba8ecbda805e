// What a training leaves in its folder besides checkpoints, and what goes on or begins from it.
#include "tests/programs/programs.h"
#include "windrow/models/datasets.h"
#include "windrow/training/record.h"

namespace windrow::testing {
namespace {

class Runs : public Programs {
 protected:
  Runs() {
    for (const auto& [name, seed] : {std::pair("train.txt", 1), std::pair("dev.txt", 2), std::pair("test.txt", 3)}) {
      std::ofstream(folder / name) << generate_treebank(40, static_cast<std::uint64_t>(seed));
    }
  }
  /// In the folder of the data, under relative names.
  Outcome train(const std::string& more) const {
    return windrow_there(
        "train tree-lstm --hidden 8 --embedding 8 --batch 16 --optimiser adam --cell child-sum --data . --save run " +
        more);
  }
  std::vector<std::string> lines_of_log() const {
    return lines_of({read_file(folder / "run" / "epochs.jsonl"), "", 0});
  }
};

TEST_F(Runs, GoOnWithoutTheirFlagsFromAnyFolder) {
  const std::vector<std::string> straight = epochs_of(train("--epochs 3").out);
  ASSERT_EQ(straight.size(), 3u);
  std::filesystem::remove_all(folder / "run");
  ASSERT_EQ(train("--epochs 1").err, "");
  const std::string resume = "windrow resume " + in("run");
  const std::string second = output(resume + "--epochs 2");
  EXPECT_EQ(epochs_of(second), std::vector(straight.begin() + 1, straight.begin() + 2));
  EXPECT_EQ(epochs_of(run(resume + "--epochs=3").out), std::vector(straight.begin() + 2, straight.end()));
  EXPECT_NE(run(resume).out.find("all 3 epochs are done"), std::string::npos) << "the last flags are kept";
  EXPECT_EQ(run(resume + "--epohs 4").err,
            "windrow: unknown argument '--epohs'; did you mean --epochs? See windrow train --help\n");
  std::filesystem::remove(folder / "run" / "options.json");
  EXPECT_EQ(run(resume).err,
            "windrow: " + (folder / "run").string() +
                ": has no options.json; expected the folder of a windrow train --save, or else windrow "
                "train with its options and --resume\n");
}

TEST_F(Runs, DoNotGoOnWithOtherData) {
  ASSERT_EQ(train("--epochs 1").err, "");
  const std::string text = read_file(folder / "train.txt");
  std::ofstream(folder / "train.txt") << std::regex_replace(text, std::regex("\n\\([0-4]"), "\n(0");
  expect_failed(train("--epochs 2 --resume"),
                "windrow: run/000000000003.safetensors: of a training on other data; expected the same samples, "
                "so that the same bits follow\n");
  std::ofstream(folder / "train.txt") << text;
  EXPECT_EQ(train("--epochs 2 --resume").err, "");
}

TEST_F(Runs, KeepALineForEachEpochAlsoWhereAnEpochIsRepeated) {
  ASSERT_EQ(train("--epochs 3 --keep 9").err, "");
  const std::vector<std::string> three = lines_of_log();
  ASSERT_EQ(three.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    const Record epoch = Record::parse(three[i], "line");
    EXPECT_EQ(epoch.at("epoch").count(), i + 1);
    EXPECT_GT(epoch.at("training_loss").number(), 0);
    EXPECT_GT(epoch.at("trees_per_second").number(), 0);
    EXPECT_GE(epoch.at("validation").record().at("root accuracy").number(), 0);
  }
  // As if the program had been killed before the last checkpoint, and while it wrote a line.
  std::filesystem::remove(folder / "run" / "000000000009.json");
  std::ofstream(folder / "run" / "epochs.jsonl", std::ios::app) << "{\"epoch\": 4,\"mini";
  EXPECT_EQ(train("--epochs 4 --keep 9 --resume").err, "");
  const std::vector<std::string> four = lines_of_log();
  ASSERT_EQ(four.size(), 4u);
  EXPECT_EQ(four[1], three[1]);
  EXPECT_EQ(field(four[2], "training_loss"), field(three[2], "training_loss"));
}

TEST_F(Runs, PrintNothingButJsonIfAsked) {
  const std::vector<std::string> lines = lines_of(train("--epochs 2 --json"));
  EXPECT_EQ(lines, lines_of_log());
  EXPECT_EQ(lines.size(), 2u);
  const auto keys_of = [&](const std::string& command, std::size_t count) {
    std::vector<std::string> keys;
    const std::vector<std::string> all = lines_of(run(command));
    EXPECT_EQ(all.size(), count) << command;
    const Record record = Record::parse(all.at(0), "line");
    for (const auto& [key, value] : record.values()) keys.push_back(key);
    return keys;
  };
  using Keys = std::vector<std::string>;
  EXPECT_EQ(keys_of("windrow eval '" + (folder / "run").string() + "' --data '" + folder.string() + "' --json", 1),
            (Keys{"minibatch", "model", "samples", "validation", "validation_loss"}));
  EXPECT_EQ(keys_of("windrow schedule --samples 20 --hidden 8 --json --schedule level,serial", 3),
            (Keys{"batches_per_minibatch", "policy", "scheduling_ns_per_vertex", "vertices_per_batch"}));
  EXPECT_EQ(keys_of("windrow simulate --devices 1,2 --json", 2),
            (Keys{"computation_ms", "devices", "efficiency", "gigabytes_per_second", "hidden", "limit", "network_ms",
                  "parts", "step_ms", "without"}));
  EXPECT_EQ(Record::parse(lines_of(run("windrow devices --json")).at(0), "line").at("device").text(), "cpu");
}

/// How a training is printed is no option of its run.
TEST_F(Runs, DoNotRememberHowTheyWerePrinted) {
  ASSERT_EQ(train("--epochs 1 --json").err, "");
  const std::string resume = "windrow resume " + in("run");
  EXPECT_EQ(epochs_of(run(resume + "--epochs 2").out).size(), 1u);
  const std::vector<std::string> lines = lines_of(run(resume + "--json --epochs 3"));
  EXPECT_EQ(lines, std::vector({lines_of_log().at(2)}));
  EXPECT_EQ(run(resume + "--compare --epochs 4").err, "");
  const std::string options = read_file(folder / "run" / "options.json");
  expect_lacks(options, "--json");
  expect_lacks(options, "--compare");
  // As earlier versions have kept it.
  std::ofstream(folder / "run" / "options.json")
      << std::regex_replace(options, std::regex("\"tree-lstm\","), "\"tree-lstm\", \"--json\", \"--compare\",");
  const std::string fifth = output(resume + "--epochs 5");
  EXPECT_EQ(epochs_of(fifth).size(), 1u) << fifth;
  expect_lacks(fifth, "one vertex at a time");
}

TEST_F(Runs, AreScoredOnAFileThatIsNamed) {
  ASSERT_EQ(train("--epochs 1").err, "");
  const std::string eval = "windrow eval '" + (folder / "run").string() + "' --device cpu --data '";
  const auto scores = [&](const std::string& data) {
    const std::string outcome = output(eval + data + "'");
    return outcome.substr(std::min(outcome.find('\n'), outcome.size()));
  };
  EXPECT_EQ(scores(folder / "dev.txt"), scores(folder));
  EXPECT_NE(scores(folder / "test.txt"), scores(folder));
  EXPECT_EQ(
      run(eval + "/nowhere'").err,
      "windrow: --data: '/nowhere' is neither a folder nor a file; expected one of both; see windrow eval --help\n");
}

class FineTuning : public Programs {
 protected:
  FineTuning() {
    for (const auto& [data, seed] : {std::pair("first", 1), std::pair("second", 5)}) {
      std::filesystem::create_directory(folder / data);
      std::ofstream(folder / data / "train.txt") << generate_treebank(40, static_cast<std::uint64_t>(seed));
      std::ofstream(folder / data / "dev.txt") << generate_treebank(40, 9);
    }
    output_of(train("--data first --epochs 3 --save run"));
  }
  /// In the folder of the data, under relative names.
  Outcome train(const std::string& more, const std::string& model = "tree-lstm --hidden 8 --embedding 8") const {
    return windrow_there("train " + model + " --batch 16 " + more);
  }
  /// With a step size that changes nothing, the first epoch has the loss and the score of the trained model.
  const std::string still = " --rate 1e-30 --epochs 2 ";
};

TEST_F(FineTuning, BeginsWhereTheTrainedModelEnded) {
  const std::vector<std::string> epochs = epochs_of(train("--data first --seed 7 --init-from run" + still).out);
  ASSERT_EQ(epochs.size(), 2u);
  EXPECT_EQ(epochs[0].substr(6), epochs[1].substr(6)) << "the loss of the first epoch is that of the trained model";
  expect_has(windrow_there("eval run --data first").out, epochs[0].substr(epochs[0].rfind("  ") + 2));
  EXPECT_NE(epochs[0].substr(6), epochs_of(train("--data first --seed 7" + still).out).at(0).substr(6));
}

TEST_F(FineTuning, SaysHowMuchItHasFoundAndTakesACheckpointByItsFile) {
  const auto said = [&](const std::string& more) {
    std::string out = train(still + more).out;
    out.erase(0, out.find("initialised"));
    return out.substr(0, out.find('\n'));
  };
  expect_match(said("--data first --init-from run"),
               "initialised from run/000000000009.safetensors: 8 parameters; ([0-9,]+) of \\1 words, 5 of 5 labels");
  const std::string other = said("--data second --init-from run/000000000006.json");
  const std::regex some("initialised from run/000000000006.safetensors: 8 parameters; ([0-9]+) of ([0-9]+) words, .*");
  std::smatch words;
  ASSERT_TRUE(std::regex_match(other, words, some)) << other;
  EXPECT_GT(std::stoi(words[1]), 0);
  EXPECT_LT(std::stoi(words[1]), std::stoi(words[2]));
  expect_match(said("--data first --classes 2 --init-from run"), ".* words, 2 of 2 labels");
}

TEST_F(FineTuning, OverrulesWordVectorsForWordsOfBoth) {
  const std::string text = read_file(folder / "first" / "train.txt");
  const std::size_t end = text.find(')');
  const std::string word = text.substr(text.rfind(' ', end) + 1, end - text.rfind(' ', end) - 1);
  std::ofstream(folder / "vectors.txt") << word << " 1 2 3 4 5 6 7 8\n";
  const std::string init = "--data first --init-from run" + still;
  const Outcome both = train(init + "--vectors vectors.txt");
  expect_has(both.out, "vectors of 1 of the ");
  EXPECT_EQ(epochs_of(both.out), epochs_of(train(init).out));
}

TEST_F(FineTuning, GoesOnWithoutBeginningAnew) {
  const std::string flags = "--data second --optimiser adam --init-from run --save ";
  const std::vector<std::string> straight = epochs_of(train(flags + "straight --epochs 3").out);
  ASSERT_EQ(straight.size(), 3u);
  ASSERT_EQ(train(flags + "tuned --epochs 1").err, "");
  std::filesystem::remove_all(folder / "run");
  const std::string resumed = output_of(windrow_there("resume tuned --epochs 3"));
  expect_lacks(resumed, "initialised");
  EXPECT_EQ(epochs_of(resumed), std::vector(straight.begin() + 1, straight.end()));
}

TEST_F(FineTuning, IsRefusedInOneLineBeforeAnythingIsOverwritten) {
  const auto refused = [&](const std::string& more, const std::string& model) {
    const std::string saved = read_file(folder / "run" / "options.json");
    const Outcome outcome = train("--data first --init-from run " + more, model);
    EXPECT_EQ(read_file(folder / "run" / "options.json"), saved);
    EXPECT_TRUE(epochs_of(outcome.out).empty());
    return refusal_of(outcome);
  };
  const std::string same = "tree-lstm --hidden 8 --embedding 8", file = "windrow: run/000000000009.safetensors: ";
  EXPECT_EQ(refused("", "tree-lstm --hidden 16 --embedding 8"),
            file + "parameter 'leaf' has 24 columns; expected 48, with --hidden 16 (was 8)\n");
  EXPECT_EQ(refused("", "tree-lstm --hidden 8 --embedding 4"),
            file + "parameter 'words' has 8 columns; expected 4, with --embedding 4 (was 8)\n");
  EXPECT_EQ(refused("--cell child-sum", same), file +
                                                   "a model with cell \"binary\"; expected \"child-sum\", as the "
                                                   "flags say\n");
  EXPECT_EQ(windrow_there("train mlp --hidden 8 --samples 64 --init-from run").err,
            file + "a model \"tree-lstm\"; expected \"mlp\", as the flags say\n");
  expect_has_all(refused("--save other --resume", same), {"--init-from", "--resume"});
  EXPECT_EQ(refused("--save run", same),
            "windrow: run: has checkpoints of an earlier run, up to step 9; expected another folder, or to resume that "
            "run\n");
  EXPECT_EQ(refused("--init-from first", same),
            "windrow: first: no checkpoint; expected one that windrow train --save has written\n");
  EXPECT_EQ(
      refused("--init-from first/train.txt", same),
      "windrow: first/train.txt: not a file of a checkpoint; expected one, such as 000000000300.json, or a folder "
      "of checkpoints\n");
  expect_has(refused("--init-from nowhere", same), "--init-from: 'nowhere' is neither a folder nor a file");
}

}  // namespace
}  // namespace windrow::testing
