// The program `windrow`: trains the models of the zoo.
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <sstream>

#include "program.h"
#include "windrow/models/tree_trainer.h"

namespace {

using namespace windrow;

struct Arguments {
  std::string model, data, policy = "pool", device = "cpu";
  Index hidden = 128, embedding = 128;
  std::size_t batch = 64;
  int epochs = 8, workers = default_workers();
  double rate = 0.1;
  std::uint64_t seed = 1;
  bool compare = false;
};

void add_train(CLI::App& app, Arguments& to) {
  using namespace program;
  CLI::App& train = *app.add_subcommand("train", "Trains a model and prints what it learned, epoch by epoch.");
  train.option_defaults()->take_last();  // so that scripts can be given flags that win over their own
  const auto flag = [&](const char* name, auto& value, const char* what, const CLI::Validator& valid) {
    train.add_option(name, value, what)->check(valid)->capture_default_str();
  };
  constexpr std::int64_t large = 1 << 20;
  train.add_option("model", to.model, "What to train")->required()->check(one_of({"tree-lstm"}));
  train.add_option("--data", to.data, "Folder with train.txt and dev.txt, a bracketed tree a line; else generated");
  flag("--hidden", to.hidden, "Width of the states", whole_number(1, large));
  flag("--embedding", to.embedding, "Width of the words", whole_number(1, large));
  flag("--batch", to.batch, "Trees a minibatch", whole_number(1, large));
  flag("--epochs", to.epochs, "Times through the trees", whole_number(1, large));
  flag("--rate", to.rate, "Step of gradient descent, a tree", positive_number());
  flag("--workers", to.workers, "Ops that run at the same time", whole_number(1, 1024));
  flag("--policy", to.policy, "Running policy", one_of({"serial", "pool", "per_device", "chaos"}));
  flag("--seed", to.seed, "Of initial values, orders and generated trees", whole_number(0, INT64_MAX / 10));
  flag("--device", to.device, "Where to compute", one_of({"cpu"}));
  train.add_flag("--compare", to.compare, "Then train one vertex at a time too, and print how much batching brings");
}

std::vector<LabelledTree> trees_of(const Arguments& arguments, const char* part, std::size_t generated,
                                   std::uint64_t seed) {
  if (!arguments.data.empty())
    return read_treebank(std::filesystem::path(arguments.data) / (part + std::string(".txt")));
  std::istringstream text(generate_treebank(generated, seed));
  return read_treebank(text, std::string("generated ") + part);
}

double median(std::array<double, 3> values) {
  std::sort(values.begin(), values.end());
  return values[1];
}

/// Trains on, batched and one vertex at a time in turn, so that both see the machine's moods.
void compare(TreeTrainer& trainer) {
  using Batching = TreeTrainer::Batching;
  constexpr std::size_t trees = 512;
  const auto rate = [&](Batching batching) {
    const TreeTrainer::Pass pass = trainer.train(trees, batching);
    return static_cast<double>(pass.trees) / pass.seconds;
  };
  std::array<double, 3> batched{}, unbatched{};
  for (std::size_t i = 0; i < batched.size(); ++i) {
    batched[i] = rate(Batching::batched);
    unbatched[i] = rate(Batching::unbatched);
  }
  std::printf("\n                        trees/s\n");
  std::printf("batched                 %7.0f\n", median(batched));
  std::printf("one vertex at a time    %7.0f  (same kernels, no waits)\n", median(unbatched));
  std::printf("factor                  %7.1f\n", median(batched) / median(unbatched));
}

void train_tree_lstm(const Arguments& arguments) {
  const auto train = trees_of(arguments, "train", 4096, 2 * arguments.seed);
  const auto dev = trees_of(arguments, "dev", 512, 2 * arguments.seed + 1);
  Engine engine({.policy = parse_policy(arguments.policy), .workers = arguments.workers});
  TreeTrainer trainer(host_device(engine), train,
                      {.hidden = arguments.hidden,
                       .embedding = arguments.embedding,
                       .batch = arguments.batch,
                       .rate = arguments.rate,
                       .seed = arguments.seed});
  const TreeTrainer::Trees unseen = trainer.prepare(dev);
  std::printf("tree-lstm: %zu trees to learn, %zu unseen; %s, %d workers\n\n", train.size(), dev.size(),
              arguments.policy.c_str(), arguments.workers);
  std::printf("epoch  loss a vertex  root accuracy  all-node accuracy  trees/s\n");
  for (int epoch = 1; epoch <= arguments.epochs; ++epoch) {
    const TreeTrainer::Pass pass = trainer.train();
    const TreeAccuracy accuracy = trainer.evaluate(unseen);
    std::printf("%5d  %13.4f  %11.1f %%  %15.1f %%  %7.0f\n", epoch, pass.loss, 100 * accuracy.root, 100 * accuracy.all,
                static_cast<double>(pass.trees) / pass.seconds);
    std::fflush(stdout);
  }
  if (arguments.compare) compare(trainer);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Trains dynamic neural nets on the Windrow runtime.", "windrow");
  app.require_subcommand(1);
  Arguments arguments;
  add_train(app, arguments);
  return windrow::program::run(app, argc, argv, [&] { train_tree_lstm(arguments); });
}
