#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <memory>
#include <optional>

#include "program/commands/commands.h"
#include "program/options/flags.h"
#include "program/output/batch_facts.h"
#include "program/output/peak.h"
#include "program/output/program.h"
#include "windrow/models/trainer.h"

namespace windrow::program {
namespace {

struct ExplainArguments {
  std::string model, schedule = "level";
  WorkloadOptions workload;
  std::size_t batch = 64, minibatches = 4;
  double seconds = 1;
  int workers = default_workers();
  bool json = false;

  std::size_t samples_of(const Workload& of) const { return std::min(of.training.size(), batch * minibatches); }
};

double ratio(double part, double all) { return all == 0 ? 0 : part / all; }
double ratio(std::int64_t part, std::int64_t all) { return ratio(static_cast<double>(part), static_cast<double>(all)); }

// --- Measured

/// The speed of training, and the peaks of the machine. Times and rates are of all workers together.
struct Speed {
  double seconds = 0;                       ///< of training, by the clock
  std::int64_t minibatches = 0;             ///< trained on
  RunnerStats runner = {};                  ///< of this training: times, operations, bytes
  double formula_flops = 0;                 ///< of this training, by Workload::formula
  std::vector<TraceSummary::Row> ops = {};  ///< of this training, for a model without vertices
  double product_peak = 0;                  ///< floating point operations per second in large products
  double bandwidth = 0;                     ///< bytes per second of the memory
};

constexpr std::size_t elements_of_bandwidth = 1 << 24;  // of two arrays, which exceed the caches

/// Trains on the minibatches again and again; the peaks are measured in between, so that other work on the machine
/// affects all of them.
Speed measured(const Device& device, Workload& workload, const ExplainArguments& arguments) {
  constexpr int rounds = 3;
  TrainerOptions options{.minibatch = arguments.batch, .seed = arguments.workload.seed};
  options.optimiser.rate = workload.kind->learning_rate;
  options.runner.schedule = parse_schedule_policy(arguments.schedule);
  options.runner.time_steps = true;
  Trainer trainer(device, workload, options);
  const std::size_t samples = arguments.samples_of(workload);
  trainer.train(samples);  // warms up: makes plans and allocates memory
  Speed speed;
  const int threads = std::min(arguments.workers, default_workers());
  ProductPeak products(threads);
  Bandwidth memory(threads, elements_of_bandwidth);
  const RunnerStats before = trainer.stats();
  const std::uint64_t first = trainer.minibatches();
  Trace trace = device.engine->trace();
  const bool traced = workload.kind->has_graph_mode;
  if (traced) trace.start();
  for (int round = 0; round < rounds; ++round) {
    products.sample(arguments.seconds / rounds);
    speed.bandwidth = std::max(speed.bandwidth, 1e9 * memory.measure(arguments.seconds / rounds / 2));
    const double until = speed.seconds + arguments.seconds / rounds;
    while (speed.seconds < until) {
      const Trainer::Pass pass = trainer.train(samples);
      speed.seconds += pass.seconds;
      speed.formula_flops += 3 * pass.flops;
    }
  }
  if (traced) {
    trace.stop();
    speed.ops = trace.summary().ops;
  }
  const RunnerStats after = trainer.stats();
  speed.minibatches = static_cast<std::int64_t>(trainer.minibatches() - first);
  speed.runner.minibatches = after.minibatches - before.minibatches;
  speed.runner.vertices = after.vertices - before.vertices;
  speed.runner.batches = after.batches - before.batches;
  speed.runner.multiply_flops = after.multiply_flops - before.multiply_flops;
  speed.runner.times = after.times - before.times;
  speed.product_peak = 1e9 * products.gflops();
  return speed;
}

/// A kind of work, or the steps of one operator. Rates are per second of one worker: operations of products, bytes of
/// everything else.
struct Work {
  std::string name, key;
  const char* unit;                  ///< of a billion per second
  double ms;                         ///< of all workers, per minibatch
  double share;                      ///< of the workers' time
  double rate = 0;                   ///< achieved; 0 where nothing is counted
  double machine = 0;                ///< the best that the machine reached in the same run
  std::vector<Work> operators = {};  ///< the parts of a kind, by time; keys are names
};

std::vector<Work> work_of(const Speed& speed, int workers) {
  const StepTimes& times = speed.runner.times;
  const double all = speed.seconds * 1e9 * workers, threads = std::min(workers, default_workers());
  struct Done {
    std::int64_t count;
    double peak;
    const char* unit;
  };
  const auto work = [&](const std::string& name, const std::string& key, std::int64_t ns, const Done& done,
                        const OperatorTimes& operators = {}) {
    const auto row = [&](const std::string& title, const std::string& of, std::int64_t spent, std::int64_t count) {
      const double time = static_cast<double>(spent);
      return Work{.name = title,
                  .key = of,
                  .unit = done.unit,
                  .ms = time / 1e6 / static_cast<double>(speed.minibatches),
                  .share = time / all,
                  .rate = 1e9 * ratio(static_cast<double>(count), time),
                  .machine = done.peak / threads};
    };
    Work kind = row(name, key, ns, done.count);
    for (const auto& [op, time] : operators) {
      if (time.steps > 0) kind.operators.push_back(row("  " + op, op, time.ns, time.flops + time.bytes));
    }
    std::ranges::stable_sort(kind.operators, std::greater(), &Work::ms);
    return kind;
  };
  const auto rest =
      std::max<std::int64_t>(std::llround(all) - times.product_ns - times.arithmetic_ns - times.move_ns, 0);
  const Done products{speed.runner.multiply_flops, speed.product_peak, "GFLOP/s"};
  return {work("products", "products", times.product_ns, products, times.products),
          work("other arithmetic", "arithmetic", times.arithmetic_ns, {times.arithmetic_bytes, speed.bandwidth, "GB/s"},
               times.arithmetic),
          work("moves", "moves", times.move_ns, {times.move_bytes, speed.bandwidth, "GB/s"}, times.moves),
          work("rest", "rest", rest, {0, 0, ""}), work("all together", "all", std::llround(all), products)};
}

// --- Output

/// The width of a column with this title and these names.
template <class Rows>
int width_of(const std::string& title, const Rows& rows) {
  std::size_t wide = title.size();
  for (const auto& row : rows) wide = std::max(wide, row.name.size());
  return static_cast<int>(wide);
}

std::string title_of(int workers) { return "training, " + counted(static_cast<std::size_t>(workers), "worker"); }

double ms_of(const TraceSummary::Row& op) { return 1e3 * std::chrono::duration<double>(op.total).count(); }

void print_batches(const BatchFacts& facts, const std::string& schedule) {
  const auto each = [&](std::int64_t sum) { return ratio(sum, facts.minibatches); };
  print("per minibatch: %.1f vertices in %.1f batches, %.1f vertices per batch\n\n", each(facts.vertices),
        each(facts.batches), ratio(facts.vertices, facts.batches));
  const int width = width_of("vertex type", facts.types);
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

/// For a model whose graphs are known only as it runs.
void print_runs(const Speed& speed) {
  const auto each = [&](std::int64_t sum) { return ratio(sum, speed.minibatches); };
  print("per minibatch: %.1f vertices in %.1f batches, %.1f vertices per batch\n", each(speed.runner.vertices),
        each(speed.runner.batches), ratio(speed.runner.vertices, speed.runner.batches));
  print(
      "The model builds its graphs as it runs, from values that it reads. So a minibatch is computed in %.1f parts,\n"
      "one after the other: vertices of different parts share no batch. A batch is a series of steps over the rows\n"
      "of one vertex type, forward or backward. What is recomputed for gradients counts again.\n",
      each(speed.runner.minibatches));
}

/// For a model without vertices.
void print_ops(const Speed& speed, int workers) {
  const auto each = [&](double sum) { return sum / static_cast<double>(speed.minibatches); };
  double count = 0, time = 0;
  for (const TraceSummary::Row& op : speed.ops) {
    count += static_cast<double>(op.count);
    time += ms_of(op);
  }
  const int width = width_of("all ops ", speed.ops);
  print("per minibatch: %.1f ops\n", each(count));
  print(
      "The model has no graphs, so there are no vertices to batch: each operator computes a whole minibatch. By "
      "default\n"
      "they are recorded once, and replayed (--graph).\n\n");
  print("%-*s  per minibatch  ms per minibatch  share of all ops\n", width, "op");
  for (const TraceSummary::Row& op : speed.ops) {
    print("%-*s  %13.1f  %16.3f  %14.1f %%\n", width, op.name.c_str(), each(static_cast<double>(op.count)),
          each(ms_of(op)), 100 * ratio(ms_of(op), time));
  }
  print("%-*s  %13.1f  %16.3f\n", width, "all ops", each(count), each(time));
  const double rate = speed.formula_flops / speed.seconds;
  print(
      "\n%s: %.3f ms per minibatch, by the clock\n"
      "products, by their formula: %.1f GFLOP/s, %.1f %% of the %.1f GFLOP/s that large products reached in the same "
      "run\n",
      title_of(workers).c_str(), each(1e3 * speed.seconds), rate / 1e9, 100 * ratio(rate, speed.product_peak),
      speed.product_peak / 1e9);
}

constexpr double least_share = 0.005;  // of the time; operators with less are not printed

void print_speed(const std::vector<Work>& all, int workers) {
  const std::string title = title_of(workers);
  std::vector<Work> rows;
  for (const Work& kind : all) {
    rows.push_back(kind);
    std::ranges::copy_if(kind.operators, std::back_inserter(rows),
                         [](const Work& work) { return work.share >= least_share; });
  }
  const int width = width_of(title, rows);
  print("\n%-*s  ms per minibatch  share of time  achieved per worker  machine  share of it\n", width, title.c_str());
  for (const Work& work : rows) {
    print("%-*s  %17.2f  %11.1f %%", width, work.name.c_str(), work.ms, 100 * work.share);
    if (work.machine == 0) {
      print("  optimiser, scheduling, waiting\n");
    } else {
      print("  %11.1f %-7s  %7.1f  %9.1f %%\n", work.rate / 1e9, work.unit, work.machine / 1e9,
            100 * ratio(work.rate, work.machine));
    }
  }
  print(
      "\nThe machine's speed was measured in the same run: large products, and memory that is read and written. Values "
      "in\n"
      "caches are faster than memory, so that shares of its bandwidth may exceed 100 %%. Operators that take less "
      "than\n"
      "%.1f %% of the time are left out.\n",
      100 * least_share);
}

void add_facts(Record& record, const BatchFacts& facts) {
  RecordValue::List types;
  for (const BatchFacts::Type& type : facts.types) {
    types.push_back(Record()
                        .set("name", type.name)
                        .set("vertices", type.vertices)
                        .set("batches", type.batches)
                        .set("flops_per_vertex", type.flops));
  }
  const BatchFacts::Causes& causes = facts.causes;
  record.set("minibatches", facts.minibatches).set("vertices", facts.vertices);
  record.set("batches", facts.batches).set("groups", facts.groups).set("types", types);
  record.set("causes", Record()
                           .set("types", causes.types)
                           .set("dependencies", causes.dependencies)
                           .set("schedule", causes.schedule)
                           .set("groups", causes.groups));
  record.set("critical_path",
             Record().set("vertices", facts.path_vertices).set("share_of_work", ratio(facts.path_flops, facts.flops)));
}

void add_ops(Record& record, const Speed& speed) {
  RecordValue::List ops;
  for (const TraceSummary::Row& op : speed.ops) {
    ops.push_back(Record().set("name", op.name).set("count", op.count).set("ms", ms_of(op)));
  }
  record.set("minibatches", speed.minibatches).set("ops", ops).set("seconds", speed.seconds);
  record.set("products_by_formula", speed.formula_flops / speed.seconds).set("machine_products", speed.product_peak);
}

void add_work(Record& record, const std::vector<Work>& all) {
  Record shares, times, achieved, machine;
  RecordValue::List operators;
  for (const Work& work : all) {
    for (const Work& op : work.operators) {
      operators.push_back(Record()
                              .set("name", op.key)
                              .set("kind", work.key)
                              .set("ms_per_minibatch", op.ms)
                              .set("share_of_time", op.share)
                              .set("achieved_per_worker", op.rate));
    }
    if (work.key != "all") shares.set(work.key, work.share);
    times.set(work.key, work.ms);
    if (work.machine == 0) continue;
    achieved.set(work.key, work.rate);
    machine.set(work.key, work.machine);
  }
  record.set("shares_of_time", shares).set("ms_per_minibatch", times);
  record.set("achieved_per_worker", achieved).set("machine_per_worker", machine).set("operators", operators);
}

void print_json(const ExplainArguments& arguments, const std::optional<BatchFacts>& facts, const Speed& speed) {
  Record record;
  record.set("model", arguments.model).set("schedule", arguments.schedule).set("batch", arguments.batch);
  record.set("workers", arguments.workers);
  if (!speed.ops.empty()) {
    add_ops(record, speed);
    return print_record(record);
  }
  if (facts) {
    add_facts(record, *facts);
  } else {
    record.set("minibatches", speed.minibatches).set("vertices", speed.runner.vertices);
    record.set("batches", speed.runner.batches).set("parts", speed.runner.minibatches);
  }
  add_work(record, work_of(speed, arguments.workers));
  print_record(record);
}

void run(const ExplainArguments& arguments) {
  Engine engine({.workers = arguments.workers});
  const ToldOnce once(engine);
  const Device device = host_device(engine);
  Workload workload = make_workload(arguments.model, device, arguments.workload);
  std::optional<BatchFacts> facts;
  if (workload.kind->graphs_known) {
    facts = batch_facts(workload, {.runner = {.schedule = parse_schedule_policy(arguments.schedule)},
                                   .minibatch = arguments.batch,
                                   .most = arguments.minibatches});
  }
  const Speed speed = measured(device, workload, arguments);
  if (arguments.json) return print_json(arguments, facts, speed);
  const std::size_t samples = arguments.samples_of(workload);
  const std::size_t minibatches = (samples - 1) / arguments.batch + 1;
  print("%s, %s: %s minibatch%s of %s %ss%s\n", arguments.model.c_str(), data_text(arguments.workload).c_str(),
        grouped(minibatches).c_str(), minibatches == 1 ? "" : "es", grouped(std::min(arguments.batch, samples)).c_str(),
        workload.kind->sample.c_str(), of_files(workload.training_source, arguments.workload).c_str());
  if (workload.kind->has_graph_mode) return print_ops(speed, arguments.workers);
  facts ? print_batches(*facts, arguments.schedule) : print_runs(speed);
  print_speed(work_of(speed, arguments.workers), arguments.workers);
}

}  // namespace

void add_explain(CLI::App& app) {
  const auto to = std::make_shared<ExplainArguments>();
  CLI::App& command = *app.add_subcommand("explain",
                                          "Prints what the speed of a model depends on: batches, critical path, shares "
                                          "of time and of the machine's speed.");
  flag(command, "model", to->model, "Model to explain", one_of(workload_names()))->required();
  add_workload_flags(command, to->workload);
  command.get_option("--samples")->excludes(command.get_option("--data"));  // which is always used as a whole
  flag(command, "--batch", to->batch, "Samples per minibatch", whole_number(1, 1 << 20));
  flag(command, "--minibatches", to->minibatches, "Minibatches to look at", whole_number(1, 1 << 20));
  flag(command, "--schedule", to->schedule, "How vertices are grouped into batches", one_of(schedule_policies()));
  flag(command, "--workers", to->workers, "Worker threads: ops that run at the same time", whole_number(1, 1024));
  flag(command, "--seconds", to->seconds, "Time to train, and time to measure the machine", positive_number());
  toggle(command, "--json", to->json, "Prints a JSON object; counts are sums over all minibatches");
  command.footer(command.get_footer() + "\n\n" + schedule_policies_text());
  computes(command, [to] { run(*to); });
}

}  // namespace windrow::program
