#include "schedule.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "flags.h"
#include "windrow/batching/schedule.h"

namespace windrow::program {
namespace {

struct Arguments {
  std::string model = "tree-lstm", policies = "level,depth,agenda,learned,serial";
  WorkloadOptions workload;
  std::size_t batch = 64;
};

void print_row(const std::vector<TypedGraph>& minibatches, SchedulePolicy policy, const ScheduleTable* table) {
  using Clock = std::chrono::steady_clock;
  std::size_t batches = 0, vertices = 0;
  double best = 0;  // ns of all, of three passes
  for (int pass = 0; pass < 3; ++pass) {
    batches = vertices = 0;
    const auto began = Clock::now();
    for (const TypedGraph& graph : minibatches) {
      const Schedule schedule = make_schedule(graph, policy, table);
      batches += schedule.batches.size();
      vertices += schedule.order.size();
    }
    const double took = std::chrono::duration<double, std::nano>(Clock::now() - began).count();
    best = pass == 0 ? took : std::min(best, took);
  }
  const auto share = [](double part, std::size_t all) { return part / static_cast<double>(all); };
  print("%-8s %19.1f  %10.1f  %11.1f\n", std::string(to_string(policy)).c_str(),
        share(static_cast<double>(batches), minibatches.size()), share(static_cast<double>(vertices), batches),
        share(best, vertices));
}

void run(const Arguments& arguments) {
  Engine engine;
  const ToldOnce once(engine);
  const Workload workload = make_workload(arguments.model, host_device(engine), arguments.workload);
  const std::vector<TypedGraph> minibatches = workload.network->typed_graphs(arguments.batch);
  std::int64_t fewest = 0;
  for (const TypedGraph& graph : minibatches) fewest += fewest_batches(graph);
  print("%zu %ss in %zu minibatches, %s\n\n", workload.training.size(), workload.kind->sample.c_str(),
        minibatches.size(), arguments.workload.data.empty() ? "generated" : arguments.workload.data.c_str());
  print("policy   batches a minibatch  mean width  ns a vertex\n");
  for (const std::string& name : words_of(arguments.policies)) {
    const SchedulePolicy policy = parse_schedule_policy(name);
    std::optional<ScheduleTable> table;
    if (policy == SchedulePolicy::learned) {
      table = ScheduleTable::learn(std::span(minibatches).first(1), {.seed = arguments.workload.seed});
    }
    print_row(minibatches, policy, table ? &*table : nullptr);
  }
  print("at least %19.1f\n", static_cast<double>(fewest) / static_cast<double>(minibatches.size()));
}

}  // namespace

std::function<void()> add_schedule(CLI::App& app) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App& command = *app.add_subcommand("schedule", "Prints in how many batches each policy computes a model.");
  flag(command, "model", arguments->model, "Which graphs", one_of(workload_names()));
  add_workload_flags(command, arguments->workload);
  flag(command, "--policy", arguments->policies, "Which", some_of(schedule_policies()));
  flag(command, "--batch", arguments->batch, "Samples a minibatch", whole_number(1, 1 << 20));
  return [arguments] { run(*arguments); };
}

}  // namespace windrow::program
