#include "explain.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

#include "batch_facts.h"
#include "flags.h"
#include "windrow/models/trainer.h"
#include "windrow/ops/apply.h"

namespace windrow::program {
namespace {

struct Arguments {
  std::string model, schedule = "level";
  WorkloadOptions workload;
  std::size_t batch = 64, minibatches = 4;
  double seconds = 1;
  int workers = default_workers();
  bool json = false;
};

double ratio(double part, double all) { return all == 0 ? 0 : part / all; }
double ratio(std::int64_t part, std::int64_t all) { return ratio(static_cast<double>(part), static_cast<double>(all)); }

// --- Measured

/// What training costs, and what the machine could do. Times are of all workers together.
struct Speed {
  double seconds = 0;  ///< of training, by the clock
  StepTimes times = {};
  double product_flops = 0;
  double peak = 0;  ///< floating point operations per second in large products, of all workers together
};

/// The speed of large matrix products by the kernel that minibatches use. The best shape and the best moment count.
double product_peak(const Device& device, double seconds) {
  constexpr Index shapes[][3] = {{256, 512, 512}, {512, 512, 512}, {512, 1024, 512}};
  double best = 0;
  for (const auto& [rows, inner, width] : shapes) {
    Tensor a(device, rows, inner, "a"), b(device, inner, width, "b");
    a.set(std::vector<float>(static_cast<std::size_t>(rows * inner), 0.5f));
    b.set(std::vector<float>(static_cast<std::size_t>(inner * width), 0.25f));
    const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(inner) * static_cast<double>(width);
    const auto began = std::chrono::steady_clock::now();
    for (double took = 0; took < seconds / std::size(shapes);) {
      const auto start = std::chrono::steady_clock::now();
      std::vector<Tensor> results;  // several at a time, so that no worker waits for others at the end of each
      constexpr int together = 3;
      for (int i = 0; i < together; ++i) results.push_back(apply(device, op::matmul, {.in = {a, b}}));
      for (const Tensor& result : results) device.engine->wait(result.var());
      const auto end = std::chrono::steady_clock::now();
      best = std::max(best, together * flops / std::chrono::duration<double>(end - start).count());
      took = std::chrono::duration<double>(end - began).count();
    }
  }
  return best;
}

/// Trains on the minibatches again and again; the peak is measured in between, so that other work on the machine
/// affects both.
Speed measured(const Device& device, Workload& workload, const Arguments& arguments, const RunnerOptions& runner) {
  constexpr int rounds = 3;
  RunnerOptions timed = runner;
  timed.time_steps = true;
  Trainer trainer(device, workload,
                  {.minibatch = arguments.batch,
                   .optimiser = {.rate = workload.kind->learning_rate},
                   .seed = arguments.workload.seed,
                   .runner = timed});
  const std::size_t samples = std::min(workload.training.size(), arguments.batch * arguments.minibatches);
  trainer.train(samples);  // makes plans, and fetches memory
  Speed speed;
  const RunnerStats before = trainer.stats();
  for (int round = 0; round < rounds; ++round) {
    speed.peak = std::max(speed.peak, product_peak(device, arguments.seconds / rounds));
    const double until = speed.seconds + arguments.seconds / rounds;
    while (speed.seconds < until) speed.seconds += trainer.train(samples).seconds;
  }
  const RunnerStats after = trainer.stats();
  speed.product_flops = static_cast<double>(after.multiply_flops - before.multiply_flops);
  speed.times = {.product_ns = after.times.product_ns - before.times.product_ns,
                 .arithmetic_ns = after.times.arithmetic_ns - before.times.arithmetic_ns,
                 .move_ns = after.times.move_ns - before.times.move_ns};
  return speed;
}

/// Derived from both; see the columns.
struct Shares {
  double product, arithmetic, moves, rest;  ///< of the workers' time
  double product_rate, worker_peak;         ///< GFLOP/s of one worker
  double all_rate, peak;                    ///< GFLOP/s of all workers

  Shares(const Speed& speed, int workers) {
    const double time = speed.seconds * 1e9 * workers;
    const auto share = [&](std::int64_t ns) { return static_cast<double>(ns) / time; };
    product = share(speed.times.product_ns);
    arithmetic = share(speed.times.arithmetic_ns);
    moves = share(speed.times.move_ns);
    rest = std::max(0.0, 1 - product - arithmetic - moves);
    product_rate = ratio(speed.product_flops, static_cast<double>(speed.times.product_ns));
    peak = speed.peak / 1e9;
    worker_peak = peak / std::min(workers, default_workers());
    all_rate = speed.product_flops / speed.seconds / 1e9;
  }
};

// --- Output

void print_batches(const BatchFacts& facts, const std::string& schedule) {
  const auto each = [&](std::int64_t sum) { return ratio(sum, facts.minibatches); };
  print("per minibatch: %.1f vertices in %.1f batches, %.1f vertices per batch\n\n", each(facts.vertices),
        each(facts.batches), ratio(facts.vertices, facts.batches));
  std::size_t wide = 11;
  for (const BatchFacts::Type& type : facts.types) wide = std::max(wide, type.name.size());
  const int width = static_cast<int>(wide);
  print("%-*s  %8s  %7s  %18s  %13s\n", width, "vertex type", "vertices", "batches", "vertices per batch",
        "share of work");
  for (const BatchFacts::Type& type : facts.types) {
    print("%-*s  %8.1f  %7.1f  %18.1f  %11.1f %%\n", width, type.name.c_str(), each(type.vertices), each(type.batches),
          ratio(type.vertices, type.batches),
          100 * ratio(static_cast<double>(type.vertices * type.flops), facts.flops));
  }
  const BatchFacts::Causes& causes = facts.causes;
  print("\nwhat makes %.1f batches of them\n", each(facts.batches));
  print("%8.1f  vertices of different types share no batch\n", each(causes.types));
  print("%8.1f  vertices depend on others of their type, on lower levels\n", each(causes.dependencies));
  print("%8.1f  schedule '%s' makes more than there must be\n", each(causes.schedule), schedule.c_str());
  print("%8.1f  samples are divided into %.1f groups, for several workers\n", each(causes.groups), each(facts.groups));
  print("\ncritical path: %.1f of %.1f vertices, with %.1f %% of the work, so at most %.0f workers can be busy\n",
        each(facts.path_vertices), each(facts.vertices), 100 * ratio(facts.path_flops, facts.flops),
        std::ceil(ratio(facts.flops, facts.path_flops)));
}

void print_speed(const Shares& shares, int workers) {
  print("\ntraining, %d worker%s    share of time  GFLOP/s per worker  peak  share of peak\n", workers,
        workers == 1 ? " " : "s");
  print("products               %10.1f %%  %18.1f  %4.0f  %11.1f %%\n", 100 * shares.product, shares.product_rate,
        shares.worker_peak, 100 * ratio(shares.product_rate, shares.worker_peak));
  print("other arithmetic       %10.1f %%\n", 100 * shares.arithmetic);
  print("moves                  %10.1f %%\n", 100 * shares.moves);
  print("rest                   %10.1f %%  optimiser, scheduling, waiting\n", 100 * shares.rest);
  print("all together                 100 %%  %18.1f  %4.0f  %11.1f %%\n", shares.all_rate / workers,
        shares.worker_peak, 100 * ratio(shares.all_rate, shares.peak));
}

void print_json(const Arguments& arguments, const BatchFacts& facts, const Shares& shares) {
  RecordValue::List types, levels;
  for (const BatchFacts::Type& type : facts.types) {
    types.push_back(Record()
                        .set("name", type.name)
                        .set("vertices", type.vertices)
                        .set("batches", type.batches)
                        .set("flops_per_vertex", type.flops));
  }
  for (const BatchFacts::Level& level : facts.levels) {
    levels.push_back(Record().set("vertices", level.vertices).set("batches", level.batches));
  }
  const BatchFacts::Causes& causes = facts.causes;
  Record record;
  record.set("model", arguments.model).set("schedule", arguments.schedule).set("batch", arguments.batch);
  record.set("workers", arguments.workers).set("minibatches", facts.minibatches).set("vertices", facts.vertices);
  record.set("batches", facts.batches).set("groups", facts.groups).set("types", types).set("levels", levels);
  record.set("causes", Record()
                           .set("types", causes.types)
                           .set("dependencies", causes.dependencies)
                           .set("schedule", causes.schedule)
                           .set("groups", causes.groups));
  record.set("critical_path",
             Record().set("vertices", facts.path_vertices).set("share_of_work", ratio(facts.path_flops, facts.flops)));
  record.set("shares_of_time", Record()
                                   .set("products", shares.product)
                                   .set("arithmetic", shares.arithmetic)
                                   .set("moves", shares.moves)
                                   .set("rest", shares.rest));
  record.set("gflops", Record()
                           .set("products_per_worker", shares.product_rate)
                           .set("peak_per_worker", shares.worker_peak)
                           .set("all", shares.all_rate)
                           .set("peak", shares.peak));
  print("%s\n", record.json(JsonStyle::compact).c_str());
}

void run(const Arguments& arguments) {
  Engine engine({.workers = arguments.workers});
  const ToldOnce once(engine);
  const Device device = host_device(engine);
  Workload workload = make_workload(arguments.model, device, arguments.workload);
  const RunnerOptions runner{.schedule = parse_schedule_policy(arguments.schedule)};
  const BatchFacts facts = batch_facts(
      workload,
      {.runner = runner, .minibatch = arguments.batch, .most = arguments.minibatches, .seed = arguments.workload.seed});
  const Shares shares(measured(device, workload, arguments, runner), arguments.workers);
  if (arguments.json) return print_json(arguments, facts, shares);
  print("%s, %s: %s minibatch%s of %s %ss\n", arguments.model.c_str(), data_text(arguments.workload).c_str(),
        grouped(static_cast<std::size_t>(facts.minibatches)).c_str(), facts.minibatches == 1 ? "" : "es",
        grouped(arguments.batch).c_str(), workload.kind->sample.c_str());
  print_batches(facts, arguments.schedule);
  print_speed(shares, arguments.workers);
}

}  // namespace

std::function<void()> add_explain(CLI::App& app) {
  const auto to = std::make_shared<Arguments>();
  CLI::App& command = *app.add_subcommand(
      "explain", "Prints what the speed of a model depends on: batches, critical path, shares of time and of peak.");
  flag(command, "model", to->model, "Model to explain", one_of(graph_workload_names()))->required();
  add_workload_flags(command, to->workload);
  flag(command, "--batch", to->batch, "Samples per minibatch", whole_number(1, 1 << 20));
  flag(command, "--minibatches", to->minibatches, "Minibatches to look at", whole_number(1, 1 << 20));
  flag(command, "--schedule", to->schedule, "How vertices are grouped into batches", one_of(schedule_policies()));
  flag(command, "--workers", to->workers, "Worker threads: ops that run at the same time", whole_number(1, 1024));
  flag(command, "--seconds", to->seconds, "Time to train, and time to measure the peak", positive_number());
  command.add_flag("--json", to->json, "Prints a JSON object; counts are sums over all minibatches")
      ->disable_flag_override();
  command.footer(command.get_footer() + "\n\n" + schedule_policies_text());
  return [to] { run(*to); };
}

}  // namespace windrow::program
