#include "schedule.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "windrow/batching/schedule.h"

namespace windrow::program {
namespace {

struct Arguments {
  std::string data, policies = "level,depth,agenda,learned,serial";
  std::size_t batch = 64;
  std::uint64_t seed = 1;
};

/// Minibatches of trees, whose vertices are of one type for each number of children.
std::vector<TypedGraph> minibatches_of(const std::vector<LabelledTree>& trees, std::size_t batch) {
  std::size_t most = 0;
  for (const LabelledTree& tree : trees) {
    const auto& begin = tree.graph.child_begin;
    for (std::size_t v = 0; v + 1 < begin.size(); ++v) {
      most = std::max(most, static_cast<std::size_t>(begin[v + 1] - begin[v]));
    }
  }
  std::vector<TypedGraph> minibatches;
  for (std::size_t t = 0; t < trees.size(); ++t) {
    if (t % batch == 0) minibatches.push_back({.types = static_cast<std::int32_t>(most) + 1});
    TypedGraph& all = minibatches.back();
    const GraphData& graph = trees[t].graph;
    const std::int32_t first = all.vertices(), first_child = all.child_begin.back();
    for (std::size_t v = 0; v + 1 < graph.child_begin.size(); ++v) {
      all.type.push_back(graph.child_begin[v + 1] - graph.child_begin[v]);
      all.child_begin.push_back(first_child + graph.child_begin[v + 1]);
    }
    for (const std::int32_t child : graph.children) all.children.push_back(child == no_child ? child : first + child);
  }
  return minibatches;
}

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
  const std::vector<LabelledTree> trees = trees_of(arguments.data, training_part, arguments.seed);
  const std::vector<TypedGraph> minibatches = minibatches_of(trees, arguments.batch);
  std::int64_t fewest = 0;
  for (const TypedGraph& graph : minibatches) fewest += fewest_batches(graph);
  print("%zu trees in %zu minibatches, %s\n\n", trees.size(), minibatches.size(),
        arguments.data.empty() ? "generated" : arguments.data.c_str());
  print("policy   batches a minibatch  mean width  ns a vertex\n");
  for (const std::string& name : words_of(arguments.policies)) {
    const SchedulePolicy policy = parse_schedule_policy(name);
    std::optional<ScheduleTable> table;
    if (policy == SchedulePolicy::learned) {
      table = ScheduleTable::learn(std::span(minibatches).first(1), {.seed = arguments.seed});
    }
    print_row(minibatches, policy, table ? &*table : nullptr);
  }
  print("at least %19.1f\n", static_cast<double>(fewest) / static_cast<double>(minibatches.size()));
}

}  // namespace

std::function<void()> add_schedule(CLI::App& app) {
  const auto arguments = std::make_shared<Arguments>();
  CLI::App& command = *app.add_subcommand("schedule", "Prints in how many batches each policy computes trees.");
  flag(command, "--data", arguments->data, "Has train.txt, a bracketed tree a line; else generated", folder());
  flag(command, "--policy", arguments->policies, "Which", some_of(schedule_policies()));
  flag(command, "--batch", arguments->batch, "Trees a minibatch", whole_number(1, 1 << 20));
  flag(command, "--seed", arguments->seed, "Of generated trees, and of learning", whole_number(0, UINT32_MAX));
  return [arguments] { run(*arguments); };
}

}  // namespace windrow::program
