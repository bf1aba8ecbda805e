// The program `windrow-perf`: the house's benchmarks. Start here.
#include <cstdio>

#include "program.h"
#include "train.h"

namespace {

using namespace windrow;

struct Arguments {
  std::string model, policy = "pool";
  perf::TrainOptions train;
  bool json = false;
};

void add_train(CLI::App& app, Arguments& to) {
  using namespace program;
  CLI::App& train = *app.add_subcommand("train", "Training: units/s, share of the machine's matrix product peak");
  constexpr std::int64_t large = 1 << 20;
  const auto flag = [&](const char* name, auto& value, const char* what, const CLI::Validator& valid) {
    return train.add_option(name, value, what)->check(valid)->capture_default_str();
  };
  flag("--model", to.model, "What to train", one_of({"tree-lstm"}))->required();
  train.add_option("--data", to.train.data, "Folder with train.txt, a bracketed tree a line; else generated");
  flag("--hidden", to.train.trainer.hidden, "Width of the states", whole_number(1, large));
  flag("--embedding", to.train.trainer.embedding, "Width of the words", whole_number(1, large));
  flag("--batch", to.train.trainer.batch, "Trees a minibatch", whole_number(1, large));
  flag("--workers", to.train.workers, "Numbers of workers, such as 1,2: measured in turn", whole_number(1, 1024))
      ->delimiter(',');
  flag("--policy", to.policy, "Running policy", one_of({"serial", "pool", "per_device", "chaos"}));
  flag("--passes", to.train.passes, "Times through the trees", whole_number(1, large));
  flag("--seed", to.train.trainer.seed, "Of initial values and orders", whole_number(0, INT64_MAX / 10));
  train.add_flag("--json", to.json, "One JSON object a line");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("The benchmarks of the Windrow runtime. Peers and peaks are measured in turn with it, in the same run.",
               "windrow-perf");
  app.footer(
      "Benchmarks and the commands that reproduce them:\n"
      "  Tree-LSTM training  windrow-perf train --model tree-lstm --data DIR --hidden 256 --embedding 256 --batch 64"
      " --workers 1,2 --json");
  app.require_subcommand(1);
  Arguments arguments;
  add_train(app, arguments);
  return program::run(app, argc, argv, [&] {
    arguments.train.policy = parse_policy(arguments.policy);
    for (const perf::Record& record : perf::train_tree_lstm(arguments.train)) {
      std::printf("%s\n", (arguments.json ? record.json() : record.text()).c_str());
    }
  });
}
