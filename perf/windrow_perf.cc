// The program `windrow-perf`: the house's benchmarks. Start here.
#include <algorithm>

#include "batching/commands.h"
#include "batching/tables.h"
#include "engine/backlog.h"
#include "engine/benchmark.h"
#include "engine/metg.h"
#include "engine/start.h"
#include "engine/system.h"
#include "flags.h"
#include "program.h"
#include "train.h"

namespace {

using namespace windrow;
using perf::chosen, perf::with_all;

void print(const perf::Record& record, bool json) {
  program::print("%s\n", (json ? record.json() : record.text()).c_str());
}

void add_json(CLI::App& command, bool& json) {
  command.add_flag("--json", json, "One JSON object a line")->disable_flag_override();
}

struct TrainArguments {
  std::string models, policy = "pool", schedule = "level", workers = "1";
  perf::TrainOptions train;
  bool json = false;

  void run() {
    const std::vector<std::string> names = chosen(models, program::workload_names());
    perf::require_one_model(names, train.workload);
    train.policy = parse_policy(policy);
    train.trainer.runner.schedule = parse_schedule_policy(schedule);
    if (!train.without.empty()) {
      for (const std::string& one : program::words_of(train.without)) perf::leave_out(train.trainer.runner, one);
    }
    train.trainer.seed = train.workload.seed;
    train.workers = program::numbers_of(workers);
    for (const std::string& name : names) check_workload(name, train.workload);
    for (const std::string& name : names) {
      train.model = name;
      for (const perf::Record& record : perf::train(train)) print(record, json);
    }
  }
};

CLI::App* add_train(CLI::App& app, TrainArguments& to) {
  using namespace program;
  CLI::App& train = *app.add_subcommand("train", "Training: units/s, share of the machine's matrix product peak");
  flag(train, "--model", to.models, "What to train", some_of(with_all(workload_names())))->required();
  add_workload_flags(train, to.train.workload);
  flag(train, "--batch", to.train.trainer.batch, "Samples a minibatch", whole_number(1, 1 << 20));
  flag(train, "--workers", to.workers, "Ops at the same time; several numbers take turns", whole_numbers(1, 1024));
  flag(train, "--policy", to.policy, "Running policy", one_of({"serial", "pool", "per_device", "chaos"}));
  flag(train, "--schedule", to.schedule, "Which vertices make a batch", one_of(schedule_policies()));
  flag(train, "--without", to.train.without, "Optimisations to leave out", some_of(perf::optimisation_names()));
  flag(train, "--passes", to.train.passes, "Times through the samples", whole_number(1, 1 << 20));
  train.add_flag("--inference", to.train.inference, "Ask about the unseen samples instead, with the first parameters")
      ->disable_flag_override();
  add_json(train, to.json);
  train.footer(
      train.get_footer() +
      "\n\nInside the timing: minibatches made of loaded graphs, the losses, their gradients, descent. Outside:\n"
      "data read, checked and sorted by level, once. units_per_s and unbatched_units_per_s are of the best pass,\n"
      "peak_gflops is the best that as many threads reach in oneDNN's products between the passes (on no more cores\n"
      "than there are), flops_per_unit what the model needs by formula, three times what that says for the forward\n"
      "computation, peak_share units_per_s flops_per_unit / peak_gflops, schedule_ns_per_vertex host time to make\n"
      "minibatches, peak_rss_mb of the whole process.\n"
      "With --inference, inside the timing: minibatches made, the losses, the answers, their score; flops_per_unit is\n"
      "what the formula says, and nothing is done one vertex at a time.");
  return &train;
}

struct EngineArguments {
  std::string patterns = "all", systems = "windrow";
  perf::EngineBenchmark benchmark;
  std::int64_t backlog = 0;
  bool metg = false, start = false, json = false, pattern_is_given = false;

  static bool means_all(const std::string& text) {
    const std::vector<std::string> words = program::words_of(text);
    return std::find(words.begin(), words.end(), "all") != words.end();
  }

  void run() {
    // Without a pattern each measurement has its own. Systems that do not take one are left out, unless both are named.
    const std::vector<std::string> all = metg ? perf::Pattern::names() : std::vector<std::string>();
    if (pattern_is_given) benchmark.patterns = chosen(patterns, all);
    benchmark.systems = chosen(systems, perf::built_system_names());
    benchmark.leave_out = !pattern_is_given || means_all(patterns) || means_all(systems);
    const auto report = [&](const perf::Record& record) { print(record, json); };
    if (metg) return perf::find_metg(benchmark, report);
    if (start) return perf::measure_start(benchmark, report);
    if (backlog == 0) return perf::benchmark_engines(benchmark, report);
    benchmark.ops = backlog;
    perf::measure_backlog(benchmark, report);
  }
};

CLI::App* add_engine(CLI::App& app, EngineArguments& to) {
  using namespace program;
  CLI::App& engine = *app.add_subcommand("engine", "Cost of an op: Windrow's engine and its peers, in turn");
  perf::EngineBenchmark& benchmark = to.benchmark;
  auto* const patterns =
      flag(engine, "--pattern", to.patterns, "Which ops depend on which", some_of(with_all(perf::Pattern::names())));
  auto* const systems =
      flag(engine, "--systems", to.systems, "Take turns; all of this build", some_of(with_all(perf::system_names())));
  flag(engine, "--workers", benchmark.workers, "Threads, beside the one that pushes", whole_number(1, 1024));
  auto* const width = flag(engine, "--width", benchmark.width, "Of the stencil, D and FD", whole_number(2, 1 << 16));
  auto* const ops = flag(engine, "--ops", benchmark.ops, "Of each repetition", whole_number(1, 1 << 30));
  auto* const repetitions =
      flag(engine, "--repetitions", benchmark.repetitions, "Of each system on each pattern", whole_number(1, 1 << 20));
  auto* const task =
      flag(engine, "--task-ns", benchmark.task_ns, "What each op takes by itself", whole_number(0, 1'000'000'000));
  auto* const burst = flag(engine, "--burst", benchmark.burst, "Pushes in bursts of so many, 10 us apart; 0 for one",
                           whole_number(0, 1 << 30));
  auto* const backlog =
      flag(engine, "--backlog", to.backlog, "Bytes an op of so many that wait", whole_number(1, 1 << 30));
  auto* const metg = engine.add_flag("--metg", to.metg, "The smallest ops that keep half of the peak efficiency")
                         ->disable_flag_override();
  auto* const start =
      engine.add_flag("--start", to.start, "How soon an op begins that nobody waits for; windrow alone")
          ->disable_flag_override();
  // Measurements of their own, and what says nothing to them.
  metg->excludes(start, backlog, task, burst);
  backlog->excludes(ops, repetitions, task, burst);
  start->excludes(backlog, patterns, systems, width, ops, repetitions, task, burst);
  patterns->each([&to](const std::string&) { to.pattern_is_given = true; });
  add_json(engine, to.json);
  engine.footer(
      "Patterns: A chain on one variable, B independent ops over 1,024 variables, C one writer and 64 readers, D a\n"
      "stencil that reads three neighbours, E random ops that read two of 256 variables and mutate one; FA and FD are\n"
      "A and D replayed as graphs.\n"
      "\n"
      "ns_per_op is the median from the first push until all ops are done, p05 and p95 its percentiles; push_ns the\n"
      "mean of a push, push_p50 and push_p999 percentiles of single ones, less what the timer takes; rss_mb how far\n"
      "the resident memory of a process grows that runs this system alone; round_trip_ns how long two cores took to\n"
      "hand a line of memory to each other and back; efficiency, with --task-ns, the share of the workers' time that\n"
      "is spent in tasks.\n"
      "\n"
      "--metg sweeps the length of tasks, on D if no pattern is named: metg_ns is the smallest from which on\n"
      "efficiency is at least half of the best. --backlog holds those systems back that can be held, until all is\n"
      "pushed. With --burst, windrow-bulk pushes each burst in a BulkScope; the gaps between bursts count for "
      "ns_per_op only.\n"
      "\n"
      "Peers must be named when cmake configures, as in\n"
      "-DWINDROW_PEERS='openmp;tbb;tbb-graph;starpu;taskflow;taskflow-graph' -DWINDROW_TASKFLOW=FOLDER\n"
      "Graphs that are built once stand beside FA and FD only.");
  return &engine;
}

}  // namespace

int main(int argc, char** argv) {
  perf::settle_environment(argv);
  CLI::App app("The benchmarks of the Windrow runtime.", "windrow-perf");
  app.footer(
      "Benchmarks and the commands that reproduce them:\n"
      "  Tree-LSTM training  windrow-perf train --model tree-lstm --data DIR --hidden 256 --embedding 256 --batch 64"
      " --workers 1,2 --json\n"
      "  ... inference       windrow-perf train --model tree-lstm --data DIR --inference --json\n"
      "  ... beside DyNet    scripts/peers --data DIR --dynet dynet_tree_lstm\n"
      "  Training of all     windrow-perf train --model all --workers 1,2 --json\n"
      "  Batched or serial   windrow-perf serial         each of these seven writes its table and plot to "
      "perf/results\n"
      "  Overhead            windrow-perf overhead\n"
      "  Ablation            windrow-perf ablation\n"
      "  Moves of values     windrow-perf memory\n"
      "  Schedules           windrow-perf schedules\n"
      "  By hand or found    windrow-perf hand\n"
      "  Lazy expressions    windrow-perf lazy\n"
      "  Cost of an op       windrow-perf engine --pattern all --workers 2 --systems windrow,openmp,tbb --json\n"
      "  ... in bursts       windrow-perf engine --pattern B --burst 200 --systems windrow,windrow-bulk --json\n"
      "  Smallest op         windrow-perf engine --metg --width 64 --systems all --json\n"
      "  Begin of an op      windrow-perf engine --start --workers 2 --json\n"
      "  Memory of an op     windrow-perf engine --backlog 200000 --systems all --json\n"
      "  ... by PyTorch      perf/peers/torch_tree_lstm.py --data DIR --hidden 256 512 --batch 1 16 64 256 1024\n"
      "  nn.LSTM of PyTorch  perf/peers/torch_lstm.py");
  app.require_subcommand(1);
  TrainArguments train;
  EngineArguments engine;
  const CLI::App* train_command = add_train(app, train);
  add_engine(app, engine);
  const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  const std::function<bool()> table = perf::add_tables(app, perf::command_line("windrow-perf", arguments));
  return program::run(app, argc, argv, [&] {
    if (table()) return;
    train_command->parsed() ? train.run() : engine.run();
  });
}
