// The program `windrow-perf`: the house's benchmarks. Start here.
#include "program.h"
#include "train.h"

namespace {

using namespace windrow;

struct Arguments {
  std::string model, policy = "pool", workers = "1";
  perf::TrainOptions train;
  bool json = false;
};

void add_train(CLI::App& app, Arguments& to) {
  using namespace program;
  CLI::App& train = *app.add_subcommand("train", "Training: units/s, share of the machine's matrix product peak");
  flag(train, "--model", to.model, "What to train", one_of({"tree-lstm"}))->required();
  flag(train, "--data", to.train.data, "Has train.txt, a bracketed tree a line; else generated", folder());
  flag(train, "--hidden", to.train.trainer.hidden, "Width of the states", whole_number(1, 65536));
  flag(train, "--embedding", to.train.trainer.embedding, "Width of the words", whole_number(1, 65536));
  flag(train, "--batch", to.train.trainer.batch, "Trees a minibatch", whole_number(1, 1 << 20));
  flag(train, "--workers", to.workers, "Ops at the same time; several numbers take turns", whole_numbers(1, 1024));
  flag(train, "--policy", to.policy, "Running policy", one_of({"serial", "pool", "per_device", "chaos"}));
  flag(train, "--passes", to.train.passes, "Times through the trees", whole_number(1, 1 << 20));
  flag(train, "--seed", to.train.trainer.seed, "Of initial values, orders and generated trees",
       whole_number(0, UINT32_MAX));
  train.add_flag("--json", to.json, "One JSON object a line")->disable_flag_override();
  train.footer(
      "Inside the timing: minibatches made of loaded trees, the loss at every vertex, its gradients, descent. "
      "Outside:\n"
      "trees read, checked and sorted by level, once. units_per_s and unbatched_units_per_s are of the best pass,\n"
      "peak_gflops is the best that as many threads reach in oneDNN's products between the passes (on no more cores\n"
      "than there are), flops_per_unit what the model needs by formula, peak_share units_per_s flops_per_unit /\n"
      "peak_gflops, schedule_ns_per_vertex host time to make minibatches, peak_rss_mb of the whole process.");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("The benchmarks of the Windrow runtime.", "windrow-perf");
  app.footer(
      "Benchmarks and the commands that reproduce them:\n"
      "  Tree-LSTM training  windrow-perf train --model tree-lstm --data DIR --hidden 256 --embedding 256 --batch 64"
      " --workers 1,2 --json\n"
      "  ... by PyTorch      perf/peers/torch_tree_lstm.py --data DIR --hidden 256 512 --batch 1 16 64 256 1024\n"
      "  nn.LSTM of PyTorch  perf/peers/torch_lstm.py");
  app.require_subcommand(1);
  Arguments arguments;
  add_train(app, arguments);
  return program::run(app, argc, argv, [&] {
    arguments.train.policy = parse_policy(arguments.policy);
    arguments.train.workers = program::numbers_of(arguments.workers);
    for (const perf::Record& record : perf::train_tree_lstm(arguments.train)) {
      program::print("%s\n", (arguments.json ? record.json() : record.text()).c_str());
    }
  });
}
