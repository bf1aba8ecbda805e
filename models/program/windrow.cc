// The program `windrow`: trains the models of the zoo, and shows how they are scheduled.
#include <algorithm>

#include "program.h"
#include "schedule.h"
#include "windrow/models/tree_trainer.h"

namespace {

using namespace windrow;
using program::print;

struct Arguments {
  std::string model, data, policy = "pool", schedule = "level", device = "cpu";
  Index hidden = 128, embedding = 128;
  std::size_t batch = 64;
  int epochs = 8, workers = default_workers();
  double rate = TreeTrainerOptions{}.rate;
  std::uint64_t seed = 1;
  bool compare = false;
};

CLI::App& add_train(CLI::App& app, Arguments& to) {
  using namespace program;
  CLI::App& train = *app.add_subcommand("train", "Trains a model and prints what it learned, epoch by epoch.");
  flag(train, "model", to.model, "What to train", one_of({"tree-lstm"}))->required();
  flag(train, "--data", to.data, "Has train.txt and dev.txt, a bracketed tree a line; else generated", folder());
  flag(train, "--hidden", to.hidden, "Width of the states", whole_number(1, 65536));
  flag(train, "--embedding", to.embedding, "Width of the words", whole_number(1, 65536));
  flag(train, "--batch", to.batch, "Trees a minibatch", whole_number(1, 1 << 20));
  flag(train, "--epochs", to.epochs, "Times through the trees", whole_number(1, 1 << 20));
  flag(train, "--rate", to.rate, "Step of gradient descent, for the loss of a tree", positive_number());
  flag(train, "--workers", to.workers, "Ops that run at the same time", whole_number(1, 1024));
  flag(train, "--policy", to.policy, "Running policy", one_of({"serial", "pool", "per_device", "chaos"}));
  flag(train, "--schedule", to.schedule, "Which vertices make a batch", one_of(schedule_policies()));
  flag(train, "--seed", to.seed, "Of initial values, orders and generated trees", whole_number(0, UINT32_MAX));
  flag(train, "--device", to.device, "Where to compute", one_of({"cpu"}));
  train.add_flag("--compare", to.compare, "Then train one vertex at a time too, and print how much batching brings")
      ->disable_flag_override();
  return train;
}

/// Trains on, batched and one vertex at a time in turn, so that both see the machine's moods.
void compare(TreeTrainer& trainer) {
  using Batching = TreeTrainer::Batching;
  constexpr std::size_t trees = 512;
  double batched = 0, unbatched = 0;  // of the best of three
  const auto measure = [&](Batching batching, double& best) {
    const TreeTrainer::Pass pass = trainer.train(trees, batching);
    best = std::max(best, static_cast<double>(pass.trees) / pass.seconds);
  };
  for (int i = 0; i < 3; ++i) {
    measure(Batching::batched, batched);
    measure(Batching::unbatched, unbatched);
  }
  print("\n                        trees/s\n");
  print("batched                 %7.0f\n", batched);
  print("one vertex at a time    %7.0f  (same kernels, no waits)\n", unbatched);
  print("factor                  %7.1f\n", batched / unbatched);
}

void train_tree_lstm(const Arguments& arguments) {
  const auto train = trees_of(arguments.data, program::training_part, arguments.seed);
  const auto dev = trees_of(arguments.data, program::unseen_part, arguments.seed);
  Engine engine({.policy = parse_policy(arguments.policy), .workers = arguments.workers});
  TreeTrainer trainer(host_device(engine), train,
                      {.hidden = arguments.hidden,
                       .embedding = arguments.embedding,
                       .batch = arguments.batch,
                       .rate = arguments.rate,
                       .seed = arguments.seed,
                       .schedule = parse_schedule_policy(arguments.schedule)});
  const TreeTrainer::Trees unseen = trainer.prepare(dev);
  print("tree-lstm, %s: learns from %zu trees, is asked about %zu others\n\n",
        arguments.data.empty() ? "generated trees" : arguments.data.c_str(), train.size(), dev.size());
  print("epoch  loss a vertex  root accuracy  all-node accuracy  trees/s\n");
  for (int epoch = 1; epoch <= arguments.epochs; ++epoch) {
    const TreeTrainer::Pass pass = trainer.train();
    const TreeAccuracy accuracy = trainer.evaluate(unseen);
    print("%5d  %13.4f  %11.1f %%  %15.1f %%  %7.0f\n", epoch, pass.loss, 100 * accuracy.root, 100 * accuracy.all,
          static_cast<double>(pass.trees) / pass.seconds);
  }
  if (arguments.compare) compare(trainer);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains dynamic neural nets on the Windrow runtime.", "windrow");
  app.require_subcommand(1);
  Arguments arguments;
  const CLI::App& train = add_train(app, arguments);
  const std::function<void()> schedule = program::add_schedule(app);
  return program::run(app, argc, argv, [&] { train.parsed() ? train_tree_lstm(arguments) : schedule(); });
}
