// windrow train: optimisers, checkpoints, and signals.
#include <regex>

#include "tests/programs.h"

namespace windrow::testing {
namespace {

class TrainingPrograms : public Programs {
 protected:
  /// The lines of epochs, without the throughput, which differs.
  static std::vector<std::string> epochs_of(const std::string& out) {
    std::vector<std::string> epochs;
    const std::regex line("( +[0-9]+ .* %) +[0-9]+");
    std::istringstream text(out);
    std::smatch match;
    for (std::string one; std::getline(text, one);) {
      if (std::regex_match(one, match, line)) epochs.push_back(match[1]);
    }
    return epochs;
  }

  std::string train(const std::string& more) const {
    return "windrow train tree-lstm --hidden 8 --embedding 8 --samples 400 --optimiser adam --dropout 0.2 " + more;
  }
  std::string saving() const { return " --save '" + (folder / "run").string() + "' "; }
};

TEST_F(TrainingPrograms, GoOnAsIfTheyHadNotStopped) {
  const std::vector<std::string> straight = epochs_of(run(train("--epochs 3")).out);
  ASSERT_EQ(straight.size(), 3u);
  const Outcome first = run(train("--epochs 1 --save-every 3" + saving()));
  EXPECT_EQ(first.err, "");
  EXPECT_EQ(epochs_of(first.out), std::vector(straight.begin(), straight.begin() + 1));
  const Outcome second = run(train("--epochs 3 --resume" + saving()));
  EXPECT_EQ(second.err, "");
  EXPECT_NE(second.out.find("going on from minibatch 7, in "), std::string::npos) << second.out;
  EXPECT_EQ(epochs_of(second.out), std::vector(straight.begin() + 1, straight.end()));
}

TEST_F(TrainingPrograms, SaveWhenASignalEndsThem) {
  const std::string endless = train("--epochs 1000000 --samples 64" + saving());
  for (const auto& [signal, status] : {std::pair("INT", 130), std::pair("TERM", 143)}) {
    const std::string resume = signal == std::string("TERM") ? " --resume" : "";
    const Outcome outcome = run_command("timeout --preserve-status -s " + std::string(signal) +
                                        " 1.5 '" WINDROW_BIN "'/" + endless + resume);
    EXPECT_EQ(outcome.status, status) << outcome.out << outcome.err;
    EXPECT_TRUE(std::regex_search(outcome.out, std::regex("stopped by SIG" + std::string(signal) +
                                                          " behind minibatch [0-9,]+; --resume goes on from there\n$")))
        << outcome.out;
  }
}

TEST_F(TrainingPrograms, SayInOneLineWhatTheyCannotGoOnFrom) {
  const auto refused = [&](const std::string& more) {
    const Outcome outcome = run(train(more));
    EXPECT_EQ(outcome.status, 2) << outcome.out;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    return std::regex_replace(outcome.err, std::regex(folder.string()), "DIR");
  };
  EXPECT_EQ(refused("--resume"), "windrow: --resume: no --save; expected the folder of the checkpoints\n");
  EXPECT_EQ(refused("--save-every 3"), "windrow: --save-every: no --save; expected the folder for the checkpoints\n");
  EXPECT_EQ(refused("--resume" + saving()), "windrow: DIR/run: no checkpoint; expected one to go on from\n");
  ASSERT_EQ(run(train("--epochs 1" + saving())).status, 0);
  EXPECT_EQ(refused(saving()),
            "windrow: DIR/run: has checkpoints of another training; expected --resume, or another folder\n");
  const std::string file = "windrow: DIR/run/000000000007.safetensors: ";
  EXPECT_EQ(refused("--resume --hidden 9" + saving()), file + "a model with hidden 8; expected 9, as the flags say\n");
  EXPECT_EQ(refused("--resume --cell child-sum" + saving()),
            file + "a model with cell \"binary\"; expected \"child-sum\", as the flags say\n");
  EXPECT_EQ(refused("--resume --optimiser sgd" + saving()), file + "of optimiser adam; expected sgd\n");
  EXPECT_TRUE(refused("--resume --samples 300" + saving()).starts_with(file + "tensor 'words' is "));
}

TEST_F(TrainingPrograms, TrainByEveryOptimiserAndSchedule) {
  for (const std::string optimiser : {"sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam"}) {
    const std::vector<std::string> epochs = epochs_of(
        run("windrow train tree-lstm --hidden 8 --embedding 8 --samples 64 --epochs 1 --penalty 1e-4 --clip-norm 5 "
            "--accumulate 2 --optimiser " +
            optimiser)
            .out);
    EXPECT_EQ(epochs.size(), 1u) << optimiser;
  }
  std::vector<std::string> last;
  for (const std::string schedule : {"constant", "step --rate-epochs 1", "cosine --warm-up 3", "plateau"}) {
    last.push_back(
        epochs_of(run(train("--samples 64 --batch 8 --epochs 3 --rate 0.01 --rate-schedule " + schedule)).out).at(2));
  }
  EXPECT_NE(last[0], last[1]);
  EXPECT_NE(last[0], last[2]);
}

}  // namespace
}  // namespace windrow::testing
