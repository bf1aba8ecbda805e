#include "windrow/batching/schedule.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <ranges>

#include "schedule/topology.h"
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

/// Properties of a graph that all its schedules share. The graph must outlive it, and it must outlive its frontiers.
struct ScheduleFacts : Topology {
  /// Throws MisuseError as make_schedule does.
  explicit ScheduleFacts(const TypedGraph& graph);

  const TypedGraph& graph;
  std::vector<double> mean_level;  ///< by type
};

const TypedGraph& checked(const TypedGraph& graph) {
  check(graph);
  return graph;
}

ScheduleFacts::ScheduleFacts(const TypedGraph& of) : Topology(checked(of).child_begin, of.children), graph(of) {
  if (on_cycle) {
    throw MisuseError("schedule: vertex " + std::to_string(*on_cycle) + " is its own descendant; expected no cycles");
  }
  const auto vertices = graph.type.size();
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
  /// The ready type with the lowest mean level. Of two such types, the one with lower costs, since more vertices of the
  /// other may become ready in the meantime.
  std::int32_t lowest_type() const;
  /// Whether a type precedes another one in this order.
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

/// The own depth of each vertex: the most vertices of its own type, besides itself, on a path that leads from it along
/// these edges. `order` lists each vertex after those to which its edges lead.
template <class Order>
std::vector<std::int32_t> own_beyond(const TypedGraph& graph, const Order& order,
                                     const std::vector<std::int32_t>& begin, const std::vector<std::int32_t>& edges) {
  std::vector<std::int32_t> own(graph.type.size(), 0), of_type(graph.type.size());
  for (std::int32_t type = 0; type < graph.types; ++type) {
    for (const std::int32_t v : order) {
      std::int32_t beyond = 0;
      for (auto e = begin[index(v)]; e < begin[index(v) + 1]; ++e) {
        if (edges[index(e)] != no_child) beyond = std::max(beyond, of_type[index(edges[index(e)])]);
      }
      const bool is_own = graph.type[index(v)] == type;
      if (is_own) own[index(v)] = beyond;
      of_type[index(v)] = beyond + is_own;
    }
  }
  return own;
}

/// How many vertices of each type are left, by own depth, and the largest own depth of a ready one.
class Completeness {
 public:
  explicit Completeness(const ScheduleFacts& facts)
      : depths_(own_beyond(facts.graph, facts.order, facts.graph.child_begin, facts.graph.children)),
        types_(index(facts.graph.types)) {
    for (std::size_t v = 0; v < depths_.size(); ++v) {
      std::vector<std::int32_t>& left = types_[index(facts.graph.type[v])].left;
      if (left.size() <= index(depths_[v])) left.resize(index(depths_[v]) + 1, 0);
      ++left[index(depths_[v])];
    }
  }

  /// The number of ready vertices (at least one) divided by the number of remaining vertices of the type that are no
  /// deeper than the deepest ready one.
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
    std::size_t seen = 0;      // how many of its ready vertices were read
    std::int32_t deepest = 0;  // the largest own depth among these
  };
  const std::vector<std::int32_t> depths_;
  std::vector<Type> types_;
};

Schedule by_level(const ScheduleFacts& facts) {
  const TypedGraph& graph = facts.graph;
  const auto cell = [&](std::int32_t v) {
    return index(facts.level[index(v)]) * index(graph.types) + index(graph.type[index(v)]);
  };
  std::vector<std::int32_t> next(index(facts.levels) * index(graph.types) + 1, 0);
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

/// A schedule that often has fewer batches than agenda, and takes longer to make. For each type with ready vertices,
/// consider its remaining vertices that are no deeper (by own depth) than its deepest ready one. The next batch is of
/// the type with the largest ready share of these. If all of these are ready, waiting would gain nothing.
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
  if (name == "learned") return SchedulePolicy::complete;  // old name, accepted for one more release
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
  const std::vector<std::int32_t> above =
      own_beyond(graph, std::views::reverse(facts.order), facts.consumer_begin, facts.consumers);
  std::vector<std::int32_t> most(index(graph.types), 0);
  for (std::size_t v = 0; v < above.size(); ++v) {
    most[index(graph.type[v])] = std::max(most[index(graph.type[v])], above[v] + 1);
  }
  std::int64_t sum = 0;
  for (const std::int32_t height : most) sum += height;
  return sum;
}

}  // namespace windrow
