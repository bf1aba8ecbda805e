// The program `windrow-perf`: the house's benchmarks. Start here.
#include "engine/benchmark.h"
#include "engine/system.h"
#include "program.h"
#include "train.h"

namespace {

using namespace windrow;

void print(const std::vector<perf::Record>& records, bool json) {
  for (const perf::Record& record : records) {
    program::print("%s\n", (json ? record.json() : record.text()).c_str());
  }
}

void add_json(CLI::App& command, bool& json) {
  command.add_flag("--json", json, "One JSON object a line")->disable_flag_override();
}

struct TrainArguments {
  std::string model, policy = "pool", workers = "1";
  perf::TrainOptions train;
  bool json = false;

  void run() {
    train.policy = parse_policy(policy);
    train.workers = program::numbers_of(workers);
    print(perf::train_tree_lstm(train), json);
  }
};

CLI::App* add_train(CLI::App& app, TrainArguments& to) {
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
  add_json(train, to.json);
  train.footer(
      "Inside the timing: minibatches made of loaded trees, the loss at every vertex, its gradients, descent. "
      "Outside:\n"
      "trees read, checked and sorted by level, once. units_per_s and unbatched_units_per_s are of the best pass,\n"
      "peak_gflops is the best that as many threads reach in oneDNN's products between the passes (on no more cores\n"
      "than there are), flops_per_unit what the model needs by formula, peak_share units_per_s flops_per_unit /\n"
      "peak_gflops, schedule_ns_per_vertex host time to make minibatches, peak_rss_mb of the whole process.");
  return &train;
}

struct EngineArguments {
  std::string patterns = "all", systems = "windrow";
  perf::EngineBenchmark benchmark;
  bool json = false;

  void run() {
    benchmark.patterns = patterns == "all" ? perf::Pattern::names() : program::words_of(patterns);
    benchmark.systems = program::words_of(systems);
    print(perf::benchmark_engines(benchmark), json);
  }
};

CLI::App* add_engine(CLI::App& app, EngineArguments& to) {
  using namespace program;
  CLI::App& engine = *app.add_subcommand("engine", "Cost of an op: Windrow's engine and its peers, in turn");
  std::vector<std::string> patterns = perf::Pattern::names();
  patterns.push_back("all");
  flag(engine, "--pattern", to.patterns, "Which ops depend on which", some_of(patterns));
  flag(engine, "--systems", to.systems, "Take turns", some_of(perf::system_names()));
  flag(engine, "--workers", to.benchmark.workers, "Threads, beside the one that pushes", whole_number(1, 1024));
  flag(engine, "--ops", to.benchmark.ops, "Of each repetition", whole_number(1, 1 << 30));
  flag(engine, "--repetitions", to.benchmark.repetitions, "Of each system on each pattern", whole_number(1, 1 << 20));
  flag(engine, "--task-ns", to.benchmark.task_ns, "What each op takes by itself", whole_number(0, 1'000'000'000));
  add_json(engine, to.json);
  engine.footer(
      "Patterns: A chain on one variable, B independent ops over 1,024 variables, C one writer and 64 readers, D a\n"
      "stencil of width 64 that reads three neighbours, E random ops that read two of 256 variables and mutate one,\n"
      "FA and FD as A and D with declared ops. ns_per_op is the median from the first push until all ops are done,\n"
      "p05 and p95 its percentiles; push_ns the mean of a push, push_p50 and push_p999 percentiles of single ones, "
      "less\n"
      "what the timer takes; peers must be named when cmake configures, as in -DWINDROW_PEERS='openmp;tbb'.");
  return &engine;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("The benchmarks of the Windrow runtime.", "windrow-perf");
  app.footer(
      "Benchmarks and the commands that reproduce them:\n"
      "  Tree-LSTM training  windrow-perf train --model tree-lstm --data DIR --hidden 256 --embedding 256 --batch 64"
      " --workers 1,2 --json\n"
      "  Cost of an op       windrow-perf engine --pattern all --workers 2 --systems windrow,openmp,tbb --json\n"
      "  ... by PyTorch      perf/peers/torch_tree_lstm.py --data DIR --hidden 256 512 --batch 1 16 64 256 1024\n"
      "  nn.LSTM of PyTorch  perf/peers/torch_lstm.py");
  app.require_subcommand(1);
  TrainArguments train;
  EngineArguments engine;
  const CLI::App* train_command = add_train(app, train);
  add_engine(app, engine);
  return program::run(app, argc, argv, [&] { train_command->parsed() ? train.run() : engine.run(); });
}
