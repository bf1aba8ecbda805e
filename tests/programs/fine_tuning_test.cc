// windrow train --init-from: trainings that begin with the weights of others.
#include <algorithm>
#include <filesystem>

#include "tests/programs/programs.h"
#include "windrow/models/treebank.h"

namespace windrow::testing {
namespace {

class FineTuning : public Programs {
 protected:
  FineTuning() {
    for (const auto& [data, seed] : {std::pair("first", 1), std::pair("second", 5)}) {
      std::filesystem::create_directory(folder / data);
      std::ofstream(folder / data / "train.txt") << generate_treebank(40, static_cast<std::uint64_t>(seed));
      std::ofstream(folder / data / "dev.txt") << generate_treebank(40, 9);
    }
    const Outcome outcome = train("--data first --epochs 3 --save run");
    EXPECT_EQ(outcome.err, "");
  }
  /// In the folder of the data, under relative names.
  Outcome train(const std::string& more, const std::string& model = "tree-lstm --hidden 8 --embedding 8") const {
    return there("train " + model + " --batch 16 " + more);
  }
  Outcome there(const std::string& command) const {
    return run_command("cd '" + folder.string() + "' && '" WINDROW_BIN "'/windrow " + command);
  }
  static std::string line_of(const std::string& out, const std::string& begin) {
    const std::size_t at = out.find(begin);
    return at == out.npos ? out : out.substr(at, out.find('\n', at) - at);
  }
  /// With a step size that changes nothing, the first epoch has the loss and the score of the trained model.
  const std::string still = " --rate 1e-30 --epochs 2 ";

  static std::string last_metric(const std::string& epoch) { return epoch.substr(epoch.rfind("  ") + 2); }
};

TEST_F(FineTuning, BeginsWhereTheTrainedModelEnded) {
  const std::vector<std::string> epochs = epochs_of(train("--data first --seed 7 --init-from run" + still).out);
  ASSERT_EQ(epochs.size(), 2u);
  EXPECT_EQ(epochs[0].substr(6), epochs[1].substr(6)) << "the loss of the first epoch is that of the trained model";
  const std::string scores = there("eval run --data first").out;
  EXPECT_NE(scores.find(last_metric(epochs[0])), scores.npos) << scores << epochs[0];
  EXPECT_NE(epochs[0].substr(6), epochs_of(train("--data first --seed 7" + still).out).at(0).substr(6));
}

TEST_F(FineTuning, SaysHowMuchItHasFoundAndTakesACheckpointByItsFile) {
  const auto said = [&](const std::string& more) { return line_of(train(still + more).out, "initialised"); };
  EXPECT_TRUE(std::regex_match(
      said("--data first --init-from run"),
      std::regex("initialised from run/000000000009.safetensors: 8 parameters; ([0-9,]+) of \\1 words, 5 of 5 labels")))
      << said("--data first --init-from run");
  const std::string other = said("--data second --init-from run/000000000006.json");
  std::smatch words;
  ASSERT_TRUE(std::regex_match(other, words,
                               std::regex("initialised from run/000000000006.safetensors: 8 parameters; ([0-9]+) of "
                                          "([0-9]+) words, 5 of 5 labels")))
      << other;
  EXPECT_GT(std::stoi(words[1]), 0);
  EXPECT_LT(std::stoi(words[1]), std::stoi(words[2]));
  const std::string two = said("--data first --classes 2 --init-from run");
  EXPECT_TRUE(two.ends_with(" words, 2 of 2 labels")) << two;
}

TEST_F(FineTuning, OverrulesWordVectorsForWordsOfBoth) {
  const std::string text = read_file(folder / "first" / "train.txt");
  const std::size_t end = text.find(')');
  const std::string word = text.substr(text.rfind(' ', end) + 1, end - text.rfind(' ', end) - 1);
  std::ofstream(folder / "vectors.txt") << word << " 1 2 3 4 5 6 7 8\n";
  const std::string init = "--data first --init-from run" + still;
  const Outcome both = train(init + "--vectors vectors.txt");
  EXPECT_NE(both.out.find("vectors of 1 of the "), both.out.npos) << both.out;
  EXPECT_EQ(epochs_of(both.out), epochs_of(train(init).out));
}

TEST_F(FineTuning, GoesOnWithoutBeginningAnew) {
  const std::string flags = "--data second --optimiser adam --init-from run --save ";
  const std::vector<std::string> straight = epochs_of(train(flags + "straight --epochs 3").out);
  ASSERT_EQ(straight.size(), 3u);
  ASSERT_EQ(train(flags + "tuned --epochs 1").err, "");
  std::filesystem::remove_all(folder / "run");
  const Outcome resumed = there("resume tuned --epochs 3");
  EXPECT_EQ(resumed.err, "");
  EXPECT_EQ(resumed.out.find("initialised"), resumed.out.npos);
  EXPECT_EQ(epochs_of(resumed.out), std::vector(straight.begin() + 1, straight.end()));
}

TEST_F(FineTuning, OfSeveralDevicesBeginsLikeThatOfOne) {
  const std::string init = "--data first --init-from run" + still;
  const Outcome one = train(init), two = train(init + "--devices cpu:0,cpu:1");
  EXPECT_EQ(two.err, "");
  EXPECT_EQ(line_of(two.out, "initialised"), line_of(one.out, "initialised"));
  EXPECT_EQ(epochs_of(two.out), epochs_of(one.out));
}

TEST_F(FineTuning, IsRefusedInOneLineBeforeAnythingIsOverwritten) {
  const auto refused = [&](const std::string& more, const std::string& model) {
    const std::string saved = read_file(folder / "run" / "options.json");
    const Outcome outcome = train("--data first --init-from run " + more, model);
    EXPECT_EQ(outcome.status, 2) << outcome.out;
    EXPECT_EQ(read_file(folder / "run" / "options.json"), saved);
    EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
    EXPECT_TRUE(epochs_of(outcome.out).empty());
    return outcome.err;
  };
  const std::string same = "tree-lstm --hidden 8 --embedding 8", file = "windrow: run/000000000009.safetensors: ";
  EXPECT_EQ(refused("", "tree-lstm --hidden 16 --embedding 8"),
            file + "parameter 'leaf' has 24 columns; expected 48, with --hidden 16 (was 8)\n");
  EXPECT_EQ(refused("", "tree-lstm --hidden 8 --embedding 4"),
            file + "parameter 'words' has 8 columns; expected 4, with --embedding 4 (was 8)\n");
  EXPECT_EQ(refused("--cell child-sum", same), file +
                                                   "a model with cell \"binary\"; expected \"child-sum\", as the "
                                                   "flags say\n");
  EXPECT_EQ(there("train mlp --hidden 8 --samples 64 --init-from run").err,
            file + "a model \"tree-lstm\"; expected \"mlp\", as the flags say\n");
  const std::string resumed = refused("--save other --resume", same);
  EXPECT_NE(resumed.find("--init-from"), resumed.npos) << resumed;
  EXPECT_NE(resumed.find("--resume"), resumed.npos) << resumed;
  EXPECT_EQ(refused("--save run", same),
            "windrow: run: has checkpoints of another training; expected --resume, or "
            "another folder\n");
  EXPECT_EQ(refused("--init-from first", same),
            "windrow: first: no checkpoint; expected one that windrow train --save has written\n");
  EXPECT_EQ(
      refused("--init-from first/train.txt", same),
      "windrow: first/train.txt: not a file of a checkpoint; expected one, such as 000000000300.json, or a folder "
      "of checkpoints\n");
  EXPECT_NE(refused("--init-from nowhere", same).find("--init-from: 'nowhere' is neither a folder nor a file"),
            std::string::npos);
}

}  // namespace
}  // namespace windrow::testing
