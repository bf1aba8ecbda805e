#include "schedule/topology.h"

#include <algorithm>

#include "windrow/batching/graph.h"

namespace windrow {

Topology::Topology(const std::vector<std::int32_t>& child_begin, const std::vector<std::int32_t>& children)
    : consumer_begin(child_begin.size() + 1, 0),
      waits_for(child_begin.size() - 1, 0),
      level(child_begin.size() - 1, 0) {
  const std::size_t vertices = waits_for.size();
  const auto each_child = [&](std::size_t v, auto visit) {
    for (auto e = child_begin[v]; e < child_begin[v + 1]; ++e) {
      const std::int32_t child = children[static_cast<std::size_t>(e)];
      if (child != no_child) visit(static_cast<std::size_t>(child));
    }
  };
  for (std::size_t v = 0; v < vertices; ++v) {
    each_child(v, [&](std::size_t child) { ++consumer_begin[child + 2], ++waits_for[v]; });
  }
  for (std::size_t v = 2; v < consumer_begin.size(); ++v) consumer_begin[v] += consumer_begin[v - 1];
  consumers.resize(static_cast<std::size_t>(consumer_begin.back()));
  for (std::size_t v = 0; v < vertices; ++v) {  // moves consumer_begin[i + 1] from the begin to the end of i
    each_child(v, [&](std::size_t child) {
      consumers[static_cast<std::size_t>(consumer_begin[child + 1]++)] = static_cast<std::int32_t>(v);
    });
  }
  // Kahn's algorithm (1962), from the leaves up: a vertex is visited after all its children.
  std::vector<std::int32_t> still = waits_for;
  order.reserve(vertices);
  for (std::size_t v = 0; v < vertices; ++v) {
    if (still[v] == 0) order.push_back(static_cast<std::int32_t>(v));
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    const auto v = static_cast<std::size_t>(order[i]);
    levels = std::max(levels, level[v] + 1);
    for (auto c = consumer_begin[v]; c < consumer_begin[v + 1]; ++c) {
      const auto consumer = static_cast<std::size_t>(consumers[static_cast<std::size_t>(c)]);
      level[consumer] = std::max(level[consumer], level[v] + 1);
      if (--still[consumer] == 0) order.push_back(static_cast<std::int32_t>(consumer));
    }
  }
  if (order.size() == vertices) return;
  // Each vertex that still waits has a child that still waits; following these leads around a cycle.
  auto at = static_cast<std::size_t>(std::ranges::find_if(still, [](std::int32_t n) { return n > 0; }) - still.begin());
  for (std::size_t steps = 0; steps < vertices; ++steps) {
    std::size_t next = at;
    each_child(at, [&](std::size_t child) { next = still[child] > 0 ? child : next; });
    at = next;
  }
  on_cycle = static_cast<std::int32_t>(at);
}

}  // namespace windrow
