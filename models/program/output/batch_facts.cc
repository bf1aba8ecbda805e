#include "program/output/batch_facts.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "windrow/models/trainer.h"

namespace windrow::program {
namespace {

std::size_t at(std::int32_t number) { return static_cast<std::size_t>(number); }

/// Calls body(child) for the children of a vertex.
template <class Body>
void each_child(const TypedGraph& graph, std::int32_t vertex, Body body) {
  for (auto e = graph.child_begin[at(vertex)]; e < graph.child_begin[at(vertex) + 1]; ++e) {
    if (graph.children[at(e)] != no_child) body(graph.children[at(e)]);
  }
}

void add_path(BatchFacts& to, const TypedGraph& graph, const std::vector<std::int32_t>& order) {
  struct Path {
    double flops = 0;
    std::int64_t vertices = 0;
  };
  std::vector<Path> paths(graph.type.size());
  Path longest;
  for (const std::int32_t vertex : order) {
    Path& path = paths[at(vertex)];
    each_child(graph, vertex, [&](std::int32_t child) {
      const Path& below = paths[at(child)];
      if (below.flops > path.flops || (below.flops == path.flops && below.vertices > path.vertices)) path = below;
    });
    const auto own = static_cast<double>(graph.costs[at(graph.type[at(vertex)])]);
    path.flops += own;
    ++path.vertices;
    to.flops += own;
    if (path.flops > longest.flops || (path.flops == longest.flops && path.vertices > longest.vertices)) longest = path;
  }
  to.path_flops += longest.flops;
  to.path_vertices += longest.vertices;
}

}  // namespace

TypedGraph joined(const std::vector<TypedGraph>& groups) {
  TypedGraph all{.types = groups.front().types, .costs = groups.front().costs};
  for (const TypedGraph& group : groups) {
    const std::int32_t first = all.vertices(), edges = all.child_begin.back();
    all.type.insert(all.type.end(), group.type.begin(), group.type.end());
    for (std::size_t v = 1; v < group.child_begin.size(); ++v) all.child_begin.push_back(edges + group.child_begin[v]);
    for (const std::int32_t child : group.children) all.children.push_back(child == no_child ? child : first + child);
  }
  return all;
}

void add(BatchFacts& to, const GroupedMinibatch& minibatch, SchedulePolicy policy) {
  if (minibatch.groups.empty()) return;
  std::vector<BatchFacts::Type> types;
  for (std::size_t t = 0; t < minibatch.types.size(); ++t) {
    types.push_back({.name = minibatch.types[t], .flops = minibatch.groups.front().costs[t]});
  }
  const TypedGraph all = joined(minibatch.groups);
  const Schedule whole = make_schedule(all, policy);
  const std::int64_t before = to.batches;
  for (const TypedGraph& group : minibatch.groups) {
    const Schedule schedule = make_schedule(group, policy);
    for (const Schedule::Batch& batch : schedule.batches) {
      ++types[at(batch.type)].batches;
      types[at(batch.type)].vertices += batch.end - batch.begin;
    }
    to.batches += static_cast<std::int64_t>(schedule.batches.size());
    to.vertices += group.vertices();
  }
  const std::int64_t fewest = fewest_batches(all), in_one = static_cast<std::int64_t>(whole.batches.size());
  const std::int64_t occur =
      std::count_if(types.begin(), types.end(), [](const BatchFacts::Type& type) { return type.vertices > 0; });
  to.causes.types += occur;
  to.causes.dependencies += fewest - occur;
  to.causes.schedule += in_one - fewest;
  to.causes.groups += to.batches - before - in_one;
  add_path(to, all, whole.order);
  ++to.minibatches;
  to.groups += static_cast<std::int64_t>(minibatch.groups.size());
  for (const BatchFacts::Type& type : types) {
    if (type.vertices == 0) continue;
    const auto known = std::find_if(to.types.begin(), to.types.end(),
                                    [&](const BatchFacts::Type& other) { return other.name == type.name; });
    if (known == to.types.end()) {
      to.types.push_back(type);
    } else {
      known->vertices += type.vertices;
      known->batches += type.batches;
    }
  }
}

BatchFacts batch_facts(const Workload& workload, const FactsOptions& options) {
  BatchFacts facts;
  if (!workload.kind->graphs_known) return facts;
  const std::unique_ptr<Learner> learner = workload.network->learner(options.runner);
  std::vector<std::size_t> numbers(std::min(workload.training.size(), options.minibatch * options.most));
  std::iota(numbers.begin(), numbers.end(), std::size_t{0});
  // Collects all minibatches first, because a runner's types grow with the graphs that it has seen.
  std::vector<GroupedMinibatch> minibatches;
  for (int pass = 0; pass < 2; ++pass) {
    minibatches.clear();
    for (SampleNumbers left = numbers; !left.empty();) {
      const SampleNumbers next = left.first(std::min(options.minibatch, left.size()));
      minibatches.push_back(learner->grouped(next));
      left = left.subspan(next.size());
    }
  }
  for (const GroupedMinibatch& minibatch : minibatches) add(facts, minibatch, options.runner.schedule);
  return facts;
}

}  // namespace windrow::program
