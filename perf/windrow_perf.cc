// The program `windrow-perf`: the benchmarks. Start here.
#include <algorithm>
#include <map>
#include <memory>

#include "batching/commands.h"
#include "batching/tables.h"
#include "comm/comm.h"
#include "engine/benchmark.h"
#include "flags.h"
#include "gpu/gpu.h"
#include "program.h"
#include "train.h"

namespace {

using namespace windrow;
using perf::chosen, perf::with_all;

void print(const perf::Record& record, bool json) {
  program::print("%s\n", (json ? perf::json(record) : perf::text(record)).c_str());
}

void add_json(CLI::App& command, bool& json) {
  program::toggle(command, "--json", json, "Print one JSON object per line");
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

void add_train(CLI::App& app) {
  using namespace program;
  const auto arguments = std::make_shared<TrainArguments>();
  TrainArguments& to = *arguments;
  CLI::App& train =
      *app.add_subcommand("train", "Training throughput, also as a share of the machine's peak in matrix products");
  flag(train, "--model", to.models, "Models to train", some_of(with_all(workload_names())))->required();
  add_workload_flags(train, to.train.workload);
  flag(train, "--batch", to.train.trainer.minibatch, "Samples per minibatch", whole_number(1, 1 << 20));
  flag(train, "--workers", to.workers, "Worker threads; several numbers are measured in turn", whole_numbers(1, 1024));
  flag(train, "--policy", to.policy, "How the engine runs ops", one_of({"serial", "pool", "per_device", "chaos"}));
  flag(train, "--schedule", to.schedule, "How vertices are grouped into batches", one_of(schedule_policies()));
  flag(train, "--without", to.train.without, "Optimisations to disable; see below",
       some_of(perf::optimisation_names()));
  flag(train, "--passes", to.train.passes, "Number of epochs", whole_number(1, 1 << 20));
  toggle(train, "--inference", to.train.inference,
         "Evaluate the validation set with the initial parameters instead of training");
  add_json(train, to.json);
  train.footer(
      train.get_footer() + "\n\n" + running_policies_text() + "\n" + schedule_policies_text() + "\n" +
      perf::optimisations_text() +
      "\nFields of a record (a unit is a tree, a sentence or a word):\n"
      "  units_per_s             throughput of the best pass; units_per_s_median is the median of the passes\n"
      "  flops_per_unit          floating point operations per unit: three times the formula of the forward pass\n"
      "  peak_gflops             best speed of oneDNN's matrix products on as many threads, at most one per core,\n"
      "                          measured between the passes\n"
      "  peak_share              units_per_s * flops_per_unit / peak_gflops\n"
      "  construction_ns_per_vertex\n"
      "                          time to build checked graphs with levels from a reader's output (models of trees)\n"
      "  schedule_ns_per_vertex  time to build and schedule a minibatch, per vertex\n"
      "  batches_per_minibatch   batches that a minibatch takes\n"
      "  vertices_per_unit       vertices of the graphs, per unit\n"
      "  unbatched_units_per_s   throughput of the best pass with one vertex at a time\n"
      "  peak_rss_mb             peak memory of the process in MiB\n"
      "  formula                 floating point operations of the forward pass; h is the hidden size, e the embedding\n"
      "                          size, s the size of the layer that scores actions\n"
      "\n"
      "The measured time includes building minibatches from loaded graphs, the forward and backward pass and the\n"
      "parameter update. It excludes reading and checking the data and sorting the graphs by level.\n"
      "With --inference it includes building minibatches, the forward pass and the validation scores;\n"
      "flops_per_unit is the formula itself, and there is no unbatched run.");
  computes(train, [arguments] { arguments->run(); });
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
    // Without a pattern, each measurement uses its own. Systems that cannot run a pattern are left out, unless both are
    // named.
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

void add_engine(CLI::App& app) {
  using namespace program;
  const auto arguments = std::make_shared<EngineArguments>();
  EngineArguments& to = *arguments;
  CLI::App& engine =
      *app.add_subcommand("engine", "Cost per op of Windrow's engine and of other task systems, measured in turn");
  perf::EngineBenchmark& benchmark = to.benchmark;
  auto* const patterns = flag(engine, "--pattern", to.patterns, "Dependency patterns; see below",
                              some_of(with_all(perf::Pattern::names())));
  auto* const systems = flag(engine, "--systems", to.systems, "Task systems to compare; all: those in this build",
                             some_of(with_all(perf::system_names())));
  flag(engine, "--workers", benchmark.workers, "Worker threads, in addition to the pushing thread",
       whole_number(1, 1024));
  auto* const width =
      flag(engine, "--width", benchmark.width, "Width of the stencil in patterns D and FD", whole_number(2, 1 << 16));
  auto* const ops = flag(engine, "--ops", benchmark.ops, "Ops per repetition", whole_number(1, 1 << 30));
  auto* const repetitions = flag(engine, "--repetitions", benchmark.repetitions,
                                 "Repetitions of each system on each pattern", whole_number(1, 1 << 20));
  auto* const task =
      flag(engine, "--task-ns", benchmark.task_ns, "Duration of each op in ns", whole_number(0, 1'000'000'000));
  auto* const backlog = flag<std::int64_t>(
      engine, "--backlog", [&to](const std::int64_t& count) { to.backlog = count; },
      "Measure memory per waiting op instead, while this many ops wait", whole_number(1, 1 << 30));
  auto* const metg =
      toggle(engine, "--metg", to.metg, "Measure the shortest ops that keep half of the best efficiency instead");
  auto* const start =
      toggle(engine, "--start", to.start, "Measure the delay from push to start instead (Windrow only)");
  // Separate measurements, and the flags that mean nothing to them.
  metg->excludes(start, backlog, task);
  backlog->excludes(ops, repetitions, task);
  start->excludes(backlog, patterns, systems, width, ops, repetitions, task);
  patterns->each([&to](const std::string&) { to.pattern_is_given = true; });
  add_json(engine, to.json);
  engine.footer(
      "Patterns:\n"
      "  A   a chain of ops on one variable\n"
      "  B   independent ops on 1,024 variables\n"
      "  C   one writer followed by 64 readers\n"
      "  D   a stencil, each op reads three neighbours\n"
      "  E   random ops, each reads two of 256 variables and mutates one\n"
      "  FA  pattern A as a graph that is built once and replayed; systems named -graph run only FA and FD\n"
      "  FD  pattern D as such a graph\n"
      "\n"
      "Fields of a record:\n"
      "  ns_per_op            time per op from the first push until all ops have finished, median of the repetitions;\n"
      "                       p05 and p95 are percentiles\n"
      "  push_ns              mean time of a push, median of the repetitions\n"
      "  push_p50, push_p999  percentiles of single pushes, in ns, without the cost of the timer\n"
      "  rss_mb               memory in MiB by which a process grows that runs only this system\n"
      "  efficiency           share of the workers' time that is spent inside ops (with --task-ns)\n"
      "\n"
      "Separate measurements:\n"
      "  --metg     varies the duration of ops, on pattern D unless --pattern is given. metg_ns is the shortest\n"
      "             duration with at least half of the best efficiency.\n"
      "  --backlog  pushes all ops before the first one runs, on systems that can wait. bytes_per_op is the memory\n"
      "             per waiting op.\n"
      "  --start    start_p50, start_p99 and start_max are the delay in ns from push to start, by the gap between\n"
      "             pushes (gap_us).\n"
      "\n"
      "windrow uses policy pool, windrow-per-device policy per_device. The ops of windrow-captures capture 256 bytes\n"
      "more than others. Those of windrow-values receive values that they declare; those of windrow-pointers are the\n"
      "same ops, untyped, with pointers to the objects. Both write the access list at the push, windrow in advance.\n"
      "Peers must be enabled when CMake configures the build, for example with\n"
      "-DWINDROW_PEERS='openmp;tbb;tbb-graph;starpu;taskflow;taskflow-graph' -DWINDROW_TASKFLOW=DIR");
  computes(engine, [arguments] { arguments->run(); });
}

struct GpuArguments {
  std::string models = "tree-lstm", hidden, batches = "1,16,64,256,1024";
  perf::GpuOptions gpu;
  bool json = false, without_work = false;

  void run() {
    gpu.models = chosen(models, program::batched_workload_names());
    perf::require_one_model(gpu.models, gpu.workload);
    if (!hidden.empty()) gpu.hidden = program::numbers_of(hidden);
    gpu.batches = program::numbers_of(batches);
    if (without_work) perf::leave_out_work();
    perf::measure_gpu(gpu, [&](const perf::Record& record) { print(record, json); });
  }
};

void add_gpu(CLI::App& app) {
  using namespace program;
  const auto arguments = std::make_shared<GpuArguments>();
  GpuArguments& to = *arguments;
  CLI::App& gpu = *app.add_subcommand("gpu", "Training and inference on a CUDA device, and where the time goes");
  add_device_flags(gpu, to.gpu.device);
  add_levels_flags(gpu, to.gpu.device);
  flag(gpu, "--model", to.models, "Models to train", some_of(with_all(batched_workload_names())));
  flag(gpu, "--hidden", to.hidden, "Hidden and embedding sizes; by default the models' own", whole_numbers(1, 1 << 16));
  add_size_flag(gpu, "vocabulary", to.gpu.workload);
  add_size_flag(gpu, "steps", to.gpu.workload);
  flag(gpu, "--batch", to.batches, "Samples per minibatch", whole_numbers(1, 1 << 20));
  flag(gpu, "--data", to.gpu.workload.data, "Folder with the data of one model; generated by default", folder());
  flag(gpu, "--samples", to.gpu.workload.samples, "Generated training samples; 0: the model's default",
       whole_number(0, 1 << 24));
  flag(gpu, "--passes", to.gpu.passes, "Number of epochs", whole_number(1, 1 << 20));
  toggle(gpu, "--inference", to.gpu.inference, "Evaluate the validation set instead of training");
  toggle(gpu, "--without-work", to.without_work,
         "Replace kernels and copies by no-ops, to measure the host's time; needs no device");
  add_json(gpu, to.json);
  gpu.footer(perf::gpu_fields);
  computes(gpu, [arguments] { arguments->run(); });
}

struct CommArguments {
  std::string processes = "2,4", role;
  perf::CommOptions comm;
  bool json = false;

  void run() {
    comm.perceptron.repetitions = comm.repetitions;
    if (role.empty()) {
      comm.processes = program::numbers_of(processes);
      perf::measure_comm(comm, [&](const perf::Record& record) { print(record, json); });
    } else if (const auto record = perf::run_comm_role(role, comm.perceptron)) {
      print(*record, json);
    }
  }
};

void add_comm(CLI::App& app) {
  using namespace program;
  const auto arguments = std::make_shared<CommArguments>();
  CommArguments& to = *arguments;
  CLI::App& comm = *app.add_subcommand(
      "comm", "Collectives beside bare MPI, and data-parallel steps of processes beside simulated ones");
  flag(comm, "--processes", to.processes, "Processes that mpirun starts; several numbers are measured in turn",
       whole_numbers(2, 64));
  flag(comm, "--repetitions", to.comm.repetitions, "Repetitions of each measurement", whole_number(1, 1000));
  flag(comm, "--role", to.role, "Role of a process that mpirun has started", one_of(perf::comm_roles()))
      ->default_str("");
  perf::PerceptronOptions& perceptron = to.comm.perceptron;
  flag(comm, "--layers", perceptron.layers, "With --role perceptron: layers", whole_number(1, 1000));
  flag(comm, "--width", perceptron.width, "Likewise: inputs and outputs of a layer", whole_number(1, 1 << 14));
  flag(comm, "--batch", perceptron.batch, "Likewise: samples per minibatch of a process", whole_number(1, 1 << 20));
  flag(comm, "--steps", perceptron.steps, "Likewise: steps of a repetition", whole_number(1, 1 << 20));
  add_json(comm, to.json);
  comm.footer(perf::comm_fields);
  computes(comm, [arguments] { arguments->run(); });
}

/// Commands of earlier versions, and what replaces them.
const std::map<std::string, std::string> replaced = {
    {"data-parallel", "mpirun -n 2 windrow-perf comm --role perceptron"},
    {"hand", "windrow-perf schedules --manual --batch 1,2,4,8,16,32,64"},
    {"memory", "windrow-perf ablation --times --model tree-lstm --batch 1,16,64,256"},
    {"mlp", "windrow-perf train --model mlp --workers 1,2,8"},
    {"overhead", "windrow-perf train --model tree-fc,tree-lstm"},
    {"replay", "windrow-perf static"},
    {"serial", "windrow-perf schedules --model fixed-lstm --batch 1,2,4,8,16,32,64,128"}};

}  // namespace

int main(int argc, char** argv) {
  perf::settle_environment(argv);
  CLI::App app("Benchmarks of the Windrow runtime.", "windrow-perf");
  if (const auto found = replaced.find(argc > 1 ? argv[1] : ""); found != replaced.end()) {
    program::print_error(app, "command '" + found->first + "' was replaced; expected " + found->second);
    return 2;
  }
  app.require_subcommand(1);
  add_train(app);
  add_engine(app);
  add_gpu(app);
  add_comm(app);
  perf::add_tables(app);
  return program::run(app, argc, argv);
}
