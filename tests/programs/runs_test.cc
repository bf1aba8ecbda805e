// What a training leaves in its folder besides checkpoints, and what goes on from it.
#include <algorithm>
#include <regex>

#include "tests/programs/programs.h"
#include "windrow/models/treebank.h"
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
    return run_command("cd '" + folder.string() + "' && '" WINDROW_BIN "'/windrow train tree-lstm --hidden 8 " +
                       "--embedding 8 --batch 16 --optimiser adam --cell child-sum --data . --save run " + more);
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
  const std::string resume = "windrow resume '" + (folder / "run").string() + "' ";
  const Outcome second = run(resume + "--epochs 2");
  EXPECT_EQ(second.err, "");
  EXPECT_EQ(epochs_of(second.out), std::vector(straight.begin() + 1, straight.begin() + 2));
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
  const std::string resume = "windrow resume '" + (folder / "run").string() + "' ";
  EXPECT_EQ(epochs_of(run(resume + "--epochs 2").out).size(), 1u);
  const std::vector<std::string> lines = lines_of(run(resume + "--json --epochs 3"));
  EXPECT_EQ(lines, std::vector({lines_of_log().at(2)}));
  EXPECT_EQ(run(resume + "--compare --epochs 4").err, "");
  const std::string options = read_file(folder / "run" / "options.json");
  EXPECT_EQ(options.find("--json"), std::string::npos) << options;
  EXPECT_EQ(options.find("--compare"), std::string::npos) << options;
  // As earlier versions have kept it.
  std::ofstream(folder / "run" / "options.json")
      << std::regex_replace(options, std::regex("\"tree-lstm\","), "\"tree-lstm\", \"--json\", \"--compare\",");
  const Outcome fifth = run(resume + "--epochs 5");
  EXPECT_EQ(fifth.err, "");
  EXPECT_EQ(epochs_of(fifth.out).size(), 1u) << fifth.out;
  EXPECT_EQ(fifth.out.find("one vertex at a time"), std::string::npos) << fifth.out;
}

/// Also where names of files were looked up in the folder of the data.
TEST_F(Runs, GoOnWithFilesThatTheirFlagsHaveNamed) {
  ASSERT_EQ(run("windrow train tree-lstm --hidden 8 --embedding 8 --epochs 1 --data '" + folder.string() +
                "' --train dev.txt --valid test.txt --save " + in("named"))
                .err,
            "");
  const Outcome resumed = run("windrow resume '" + (folder / "named").string() + "' --epochs 2");
  EXPECT_EQ(resumed.err, "");
  EXPECT_EQ(epochs_of(resumed.out).size(), 1u);
  EXPECT_NE(resumed.out.find(" of dev.txt, validating on 40 of test.txt\n"), std::string::npos) << resumed.out;
}

TEST_F(Runs, AreScoredOnAFileThatIsNamed) {
  ASSERT_EQ(train("--epochs 1").err, "");
  const std::string eval = "windrow eval '" + (folder / "run").string() + "' --device cpu --data '";
  const auto scores = [&](const std::string& data) {
    const Outcome outcome = run(eval + data + "'");
    EXPECT_EQ(outcome.err, "");
    return outcome.out.substr(std::min(outcome.out.find('\n'), outcome.out.size()));
  };
  EXPECT_EQ(scores(folder / "dev.txt"), scores(folder));
  EXPECT_NE(scores(folder / "test.txt"), scores(folder));
  EXPECT_EQ(
      run(eval + "/nowhere'").err,
      "windrow: --data: '/nowhere' is neither a folder nor a file; expected one of both; see windrow eval --help\n");
}

}  // namespace
}  // namespace windrow::testing
