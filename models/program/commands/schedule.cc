#include "windrow/batching/schedule.h"

#include <algorithm>
#include <chrono>
#include <memory>

#include "program/commands/commands.h"
#include "program/options/devices.h"
#include "program/output/program.h"
#include "windrow/training/record.h"

namespace windrow::program {
namespace {

struct ScheduleArguments {
  std::string model = "tree-lstm", policies = "level,depth,agenda,complete,serial", device = "cpu";
  WorkloadOptions workload;
  std::size_t batch = 64;
  bool json = false;
};

void print_row(const std::vector<TypedGraph>& minibatches, SchedulePolicy policy, bool json) {
  using Clock = std::chrono::steady_clock;
  std::size_t batches = 0, vertices = 0;
  double best = 0;  // ns for all minibatches, best of three passes
  for (int pass = 0; pass < 3; ++pass) {
    batches = vertices = 0;
    const auto began = Clock::now();
    for (const TypedGraph& graph : minibatches) {
      const Schedule schedule = make_schedule(graph, policy);
      batches += schedule.batches.size();
      vertices += schedule.order.size();
    }
    const double took = std::chrono::duration<double, std::nano>(Clock::now() - began).count();
    best = pass == 0 ? took : std::min(best, took);
  }
  const auto share = [](double part, std::size_t all) { return part / static_cast<double>(all); };
  const double per_minibatch = share(static_cast<double>(batches), minibatches.size());
  const double per_batch = share(static_cast<double>(vertices), batches), ns = share(best, vertices);
  const std::string name(to_string(policy));
  if (json) {
    Record record;
    record.set("policy", name).set("batches_per_minibatch", per_minibatch).set("vertices_per_batch", per_batch);
    return print_record(record.set("scheduling_ns_per_vertex", ns));
  }
  print("%-11s  %21.1f  %18.1f  %24.1f\n", name.c_str(), per_minibatch, per_batch, ns);
}

void run(const ScheduleArguments& arguments) {
  Engine engine;
  const ToldOnce once(engine);
  const Silence silence(arguments.json);
  const Workload workload =
      make_workload(arguments.model, open_device(engine, {.device = arguments.device}), arguments.workload);
  const std::vector<TypedGraph> minibatches = workload.network->typed_graphs(arguments.batch);
  std::int64_t fewest = 0;
  for (const TypedGraph& graph : minibatches) fewest += fewest_batches(graph);
  print("%s, %s: %s training %ss%s in %s %s\n\n", arguments.model.c_str(), data_text(arguments.workload).c_str(),
        grouped(workload.training.size()).c_str(), workload.kind->sample.c_str(),
        of_files(workload.training_source, arguments.workload).c_str(), grouped(minibatches.size()).c_str(),
        minibatches.size() == 1 ? "minibatch" : "minibatches");
  print("policy       batches per minibatch  vertices per batch  scheduling ns per vertex\n");
  for (const std::string& name : words_of(arguments.policies)) {
    print_row(minibatches, parse_schedule_policy(name), arguments.json);
  }
  const double least = static_cast<double>(fewest) / static_cast<double>(minibatches.size());
  if (arguments.json) return print_record(Record().set("policy", "lower bound").set("batches_per_minibatch", least));
  print("lower bound  %21.1f\n", least);
}

}  // namespace

void add_schedule(CLI::App& app) {
  const auto arguments = std::make_shared<ScheduleArguments>();
  CLI::App& command =
      *app.add_subcommand("schedule", "Prints how many batches a minibatch takes under each schedule policy.");
  flag(command, "model", arguments->model, "Model whose training graphs are scheduled", one_of(graph_workload_names()));
  add_workload_flags(command, arguments->workload);
  command.get_option("--samples")->excludes(command.get_option("--data"));  // which is always used as a whole
  flag(command, "--schedule", arguments->policies, "Schedule policies to compare", some_of(schedule_policies()));
  flag(command, "--device", arguments->device, "Device that would compute", device_name());
  flag(command, "--batch", arguments->batch, "Samples per minibatch", whole_number(1, 1 << 20));
  toggle(command, "--json", arguments->json, "Prints a line of JSON for each policy");
  command.footer(command.get_footer() + "\n\n" + schedule_policies_text());
  computes(command, [arguments] { run(*arguments); });
}

}  // namespace windrow::program
