#include "windrow/batching/schedule.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "windrow/batching/graph.h"

namespace windrow {
namespace {

/// The number of a vertex, type or level as an index.
std::size_t index(std::int32_t number) { return static_cast<std::size_t>(number); }

constexpr std::array<std::string_view, 5> names = {"level", "depth", "agenda", "complete", "serial"};

void check(const TypedGraph& graph) {
  const auto text = [](std::int64_t value) { return std::to_string(value); };
  const std::vector<std::int32_t>& begin = graph.child_begin;
  if (begin.size() != graph.type.size() + 1 || begin.front() != 0 ||
      begin.back() != static_cast<std::int64_t>(graph.children.size()) || !std::is_sorted(begin.begin(), begin.end())) {
    throw MisuseError("schedule: child_begin does not span the children of " + text(graph.vertices()) +
                      " vertices; expected to ascend from 0 to " +
                      text(static_cast<std::int64_t>(graph.children.size())));
  }
  if (!graph.costs.empty() && graph.costs.size() != index(graph.types)) {
    throw MisuseError("schedule: costs of " + text(static_cast<std::int64_t>(graph.costs.size())) +
                      " types; expected " + text(graph.types) + ", or none");
  }
  for (std::int32_t v = 0; v < graph.vertices(); ++v) {
    if (graph.type[index(v)] >= 0 && graph.type[index(v)] < graph.types) continue;
    throw MisuseError("schedule: vertex " + text(v) + " is of type " + text(graph.type[index(v)]) + "; expected 0 to " +
                      text(graph.types - 1));
  }
  for (const std::int32_t child : graph.children) {
    if (child == no_child || (child >= 0 && child < graph.vertices())) continue;
    throw MisuseError("schedule: there is no vertex " + text(child) + "; expected 0 to " + text(graph.vertices() - 1) +
                      ", or " + text(no_child) + " for none");
  }
}

/// Each vertex that still waits has a child that still waits; following these leads to a cycle.
[[noreturn]] void refuse_cycle(const TypedGraph& graph, const std::vector<std::int32_t>& still) {
  auto v = static_cast<std::int32_t>(std::find_if(still.begin(), still.end(), [](std::int32_t n) { return n > 0; }) -
                                     still.begin());
  for (std::int32_t steps = 0; steps < graph.vertices(); ++steps) {
    const std::int32_t here = v;
    for (auto e = graph.child_begin[index(here)]; e < graph.child_begin[index(here) + 1]; ++e) {
      const std::int32_t child = graph.children[index(e)];
      if (child != no_child && still[index(child)] > 0) v = child;
    }
  }
  throw MisuseError("schedule: vertex " + std::to_string(v) + " is its own descendant; expected no cycles");
}

/// Properties of a graph that all its schedules share. The graph must outlive it, and it must outlive its frontiers.
struct ScheduleFacts {
  /// Throws MisuseError as make_schedule does.
  explicit ScheduleFacts(const TypedGraph& graph);

  const TypedGraph& graph;
  // Consumers of each vertex in CSR format, once for each edge.
  std::vector<std::int32_t> consumer_begin, consumers;
  std::vector<std::int32_t> waits_for;  ///< by vertex: its number of children
  std::vector<std::int32_t> order;      ///< all vertices, each after its children
  std::vector<std::int32_t> level;
  std::vector<double> mean_level;  ///< by type
};

ScheduleFacts::ScheduleFacts(const TypedGraph& of) : graph(of) {
  check(graph);
  const auto vertices = graph.type.size();
  consumer_begin.assign(vertices + 2, 0);
  waits_for.assign(vertices, 0);
  for (std::size_t v = 0; v < vertices; ++v) {
    for (auto e = graph.child_begin[v]; e < graph.child_begin[v + 1]; ++e) {
      if (graph.children[index(e)] == no_child) continue;
      ++consumer_begin[index(graph.children[index(e)]) + 2];
      ++waits_for[v];
    }
  }
  for (std::size_t v = 2; v < consumer_begin.size(); ++v) consumer_begin[v] += consumer_begin[v - 1];
  consumers.resize(index(consumer_begin.back()));
  for (std::size_t v = 0; v < vertices; ++v) {  // moves consumer_begin[i + 1] from the begin to the end of i
    for (auto e = graph.child_begin[v]; e < graph.child_begin[v + 1]; ++e) {
      const std::int32_t child = graph.children[index(e)];
      if (child != no_child) consumers[index(consumer_begin[index(child) + 1]++)] = static_cast<std::int32_t>(v);
    }
  }
  // Kahn's algorithm (1962): a vertex follows when all its children were visited.
  std::vector<std::int32_t> still = waits_for;
  level.assign(vertices, 0);
  order.reserve(vertices);
  for (std::int32_t v = 0; v < graph.vertices(); ++v) {
    if (still[index(v)] == 0) order.push_back(v);
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::size_t v = index(order[i]);
    for (auto c = consumer_begin[v]; c < consumer_begin[v + 1]; ++c) {
      const std::size_t consumer = index(consumers[index(c)]);
      level[consumer] = std::max(level[consumer], level[v] + 1);
      if (--still[consumer] == 0) order.push_back(consumers[index(c)]);
    }
  }
  if (order.size() < vertices) refuse_cycle(graph, still);
  mean_level.assign(index(graph.types), 0);
  std::vector<std::int64_t> count(index(graph.types), 0);
  for (std::size_t v = 0; v < vertices; ++v) {
    mean_level[index(graph.type[v])] += level[v];
    ++count[index(graph.type[v])];
  }
  for (std::size_t t = 0; t < count.size(); ++t)
    mean_level[t] /= static_cast<double>(std::max<std::int64_t>(count[t], 1));
}

/// The vertices whose children were all taken. A value that refers to its facts.
class Frontier {
 public:
  explicit Frontier(const ScheduleFacts& facts);

  bool empty() const { return left_ == 0; }
  /// The number of ready vertices of a type.
  std::size_t ready(std::int32_t type) const { return ready_[static_cast<std::size_t>(type)].size(); }
  std::span<const std::int32_t> ready_vertices(std::int32_t type) const {
    return ready_[static_cast<std::size_t>(type)];
  }
  /// The ready type with the lowest mean level. Of two such types, the one with lower costs: meanwhile more vertices of
  /// the other may become ready.
  std::int32_t lowest_type() const;
  /// The same order.
  bool is_lower(std::int32_t type, std::int32_t than) const;
  /// Makes a batch of all ready vertices of the type.
  void take(std::int32_t type);

  Schedule schedule;

 private:
  const ScheduleFacts& facts_;
  std::vector<std::int32_t> waits_for_;
  std::vector<std::vector<std::int32_t>> ready_;  // by type
  std::size_t left_;
};

Frontier::Frontier(const ScheduleFacts& facts)
    : facts_(facts), waits_for_(facts.waits_for), ready_(index(facts.graph.types)), left_(facts.graph.type.size()) {
  schedule.order.reserve(left_);
  for (std::size_t v = 0; v < waits_for_.size(); ++v) {
    if (waits_for_[v] == 0) ready_[index(facts_.graph.type[v])].push_back(static_cast<std::int32_t>(v));
  }
}

bool Frontier::is_lower(std::int32_t type, std::int32_t than) const {
  const auto rank = [&](std::int32_t of) {
    const auto& costs = facts_.graph.costs;
    return std::pair(facts_.mean_level[index(of)], costs.empty() ? 0 : costs[index(of)]);
  };
  return rank(type) < rank(than);
}

std::int32_t Frontier::lowest_type() const {
  std::int32_t best = -1;
  for (std::int32_t type = 0; type < facts_.graph.types; ++type) {
    if (ready(type) == 0) continue;
    if (best < 0 || is_lower(type, best)) best = type;
  }
  return best;
}

void Frontier::take(std::int32_t type) {
  std::vector<std::int32_t> batch;
  batch.swap(ready_[index(type)]);
  const auto begin = static_cast<std::int32_t>(schedule.order.size());
  schedule.order.insert(schedule.order.end(), batch.begin(), batch.end());
  schedule.batches.push_back({type, begin, begin + static_cast<std::int32_t>(batch.size())});
  left_ -= batch.size();
  for (const std::int32_t v : batch) {
    for (auto c = facts_.consumer_begin[index(v)]; c < facts_.consumer_begin[index(v) + 1]; ++c) {
      const std::int32_t consumer = facts_.consumers[index(c)];
      if (--waits_for_[index(consumer)] == 0) ready_[index(facts_.graph.type[index(consumer)])].push_back(consumer);
    }
  }
  if (ready_[index(type)].empty()) {  // reuse the memory of the list
    batch.clear();
    ready_[index(type)].swap(batch);
  }
}

/// By vertex: the largest number of vertices of its own type on a path from it to a root, including itself.
std::vector<std::int32_t> own_heights(const ScheduleFacts& facts) {
  const TypedGraph& graph = facts.graph;
  std::vector<std::int32_t> heights(graph.type.size(), 0), of_type(graph.type.size());
  for (std::int32_t type = 0; type < graph.types; ++type) {
    for (std::size_t i = facts.order.size(); i-- > 0;) {
      const std::size_t v = index(facts.order[i]);
      std::int32_t above = 0;
      for (auto c = facts.consumer_begin[v]; c < facts.consumer_begin[v + 1]; ++c) {
        above = std::max(above, of_type[index(facts.consumers[index(c)])]);
      }
      of_type[v] = above + (graph.type[v] == type);
      if (graph.type[v] == type) heights[v] = of_type[v];
    }
  }
  return heights;
}

/// By vertex: the number of vertices of its own type on the longest path below it, in vertices of that type.
std::vector<std::int32_t> own_depths(const ScheduleFacts& facts) {
  const TypedGraph& graph = facts.graph;
  std::vector<std::int32_t> depths(graph.type.size(), 0), of_type(graph.type.size());
  for (std::int32_t type = 0; type < graph.types; ++type) {
    for (const std::int32_t v : facts.order) {
      std::int32_t below = 0;
      for (auto e = graph.child_begin[index(v)]; e < graph.child_begin[index(v) + 1]; ++e) {
        const std::int32_t child = graph.children[index(e)];
        if (child != no_child) below = std::max(below, of_type[index(child)]);
      }
      const bool own = graph.type[index(v)] == type;
      if (own) depths[index(v)] = below;
      of_type[index(v)] = below + own;
    }
  }
  return depths;
}

/// How many vertices of each type are left, by own depth, and the largest own depth of a ready one.
class Completeness {
 public:
  explicit Completeness(const ScheduleFacts& facts) : depths_(own_depths(facts)), types_(index(facts.graph.types)) {
    for (std::size_t v = 0; v < depths_.size(); ++v) {
      std::vector<std::int32_t>& left = types_[index(facts.graph.type[v])].left;
      if (left.size() <= index(depths_[v])) left.resize(index(depths_[v]) + 1, 0);
      ++left[index(depths_[v])];
    }
  }

  /// The share of the ready vertices, of which there are some, among those that are worth waiting for.
  double of(std::int32_t type, std::span<const std::int32_t> ready) {
    Type& is = types_[index(type)];
    for (; is.seen < ready.size(); ++is.seen) is.deepest = std::max(is.deepest, depths_[index(ready[is.seen])]);
    const auto all = std::accumulate(is.left.begin(), is.left.begin() + is.deepest + 1, std::int32_t{0});
    return static_cast<double>(ready.size()) / all;
  }
  void take(std::int32_t type, std::span<const std::int32_t> ready) {
    Type& is = types_[index(type)];
    for (const std::int32_t v : ready) --is.left[index(depths_[index(v)])];
    is.seen = 0;
    is.deepest = 0;
  }

 private:
  struct Type {
    std::vector<std::int32_t> left;
    std::size_t seen = 0;      // of its ready vertices
    std::int32_t deepest = 0;  // of these
  };
  const std::vector<std::int32_t> depths_;
  std::vector<Type> types_;
};

Schedule by_level(const ScheduleFacts& facts) {
  const TypedGraph& graph = facts.graph;
  const std::int32_t levels = facts.level.empty() ? 0 : *std::max_element(facts.level.begin(), facts.level.end()) + 1;
  const auto cell = [&](std::int32_t v) {
    return index(facts.level[index(v)]) * index(graph.types) + index(graph.type[index(v)]);
  };
  std::vector<std::int32_t> next(index(levels) * index(graph.types) + 1, 0);
  for (std::int32_t v = 0; v < graph.vertices(); ++v) ++next[cell(v) + 1];
  for (std::size_t i = 1; i < next.size(); ++i) next[i] += next[i - 1];
  Schedule schedule;
  for (std::size_t i = 0; i + 1 < next.size(); ++i) {
    if (next[i] == next[i + 1]) continue;
    schedule.batches.push_back({static_cast<std::int32_t>(i % index(graph.types)), next[i], next[i + 1]});
  }
  schedule.order.resize(graph.type.size());
  for (std::int32_t v = 0; v < graph.vertices(); ++v) schedule.order[index(next[cell(v)]++)] = v;
  return schedule;
}

Schedule one_by_one(const ScheduleFacts& facts) {
  Schedule schedule{facts.order, {}};
  schedule.batches.reserve(schedule.order.size());
  for (std::int32_t i = 0; i < facts.graph.vertices(); ++i) {
    schedule.batches.push_back({facts.graph.type[index(schedule.order[index(i)])], i, i + 1});
  }
  return schedule;
}

template <class Choose>
Schedule by_frontier(const ScheduleFacts& facts, Choose choose) {
  Frontier frontier(facts);
  while (!frontier.empty()) frontier.take(choose(frontier));
  return std::move(frontier.schedule);
}

/// A schedule that often has fewer batches than agenda, and takes longer to make. A batch is of the ready type that
/// lacks the smallest share: of its vertices that are left and have no more vertices of the type below them than a
/// ready one has, those that are not ready. A type that lacks none loses nothing by not waiting.
Schedule by_completeness(const ScheduleFacts& facts) {
  Completeness completeness(facts);
  Frontier frontier(facts);
  while (!frontier.empty()) {
    std::int32_t best = -1;
    double most = 0;
    for (std::int32_t type = 0; type < facts.graph.types; ++type) {
      if (frontier.ready(type) == 0) continue;
      const double share = completeness.of(type, frontier.ready_vertices(type));
      if (best >= 0 && (share < most || (share == most && !frontier.is_lower(type, best)))) continue;
      best = type;
      most = share;
    }
    completeness.take(best, frontier.ready_vertices(best));
    frontier.take(best);
  }
  return std::move(frontier.schedule);
}

}  // namespace

SchedulePolicy parse_schedule_policy(std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found != names.end()) return static_cast<SchedulePolicy>(found - names.begin());
  if (name == "learned") return SchedulePolicy::complete;  // for a release
  throw MisuseError("schedule policy '" + std::string(name) + "'; expected level, depth, agenda, complete or serial");
}

std::string_view to_string(SchedulePolicy policy) { return names[static_cast<std::size_t>(policy)]; }

Schedule make_schedule(const TypedGraph& graph, SchedulePolicy policy) {
  const ScheduleFacts facts(graph);
  switch (policy) {
    case SchedulePolicy::level:
    case SchedulePolicy::depth:
      return by_level(facts);
    case SchedulePolicy::agenda:
      return by_frontier(facts, [](const Frontier& frontier) { return frontier.lowest_type(); });
    case SchedulePolicy::complete:
      return by_completeness(facts);
    case SchedulePolicy::serial:
      break;
  }
  return one_by_one(facts);
}

std::int64_t fewest_batches(const TypedGraph& graph) {
  const ScheduleFacts facts(graph);
  const std::vector<std::int32_t> heights = own_heights(facts);
  std::vector<std::int32_t> most(index(graph.types), 0);
  for (std::size_t v = 0; v < heights.size(); ++v) {
    most[index(graph.type[v])] = std::max(most[index(graph.type[v])], heights[v]);
  }
  std::int64_t sum = 0;
  for (const std::int32_t height : most) sum += height;
  return sum;
}

}  // namespace windrow
