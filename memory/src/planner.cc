// The memory planner. Start here; lifetimes.h says what is alive together, placement.h finds places.
#include "windrow/memory/planner.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "lifetimes.h"
#include "placement.h"

namespace windrow {
namespace {

/// A plan for a partial order that the program implies, or that edges make.
struct Candidate {
  Lifetimes lifetimes;
  std::size_t lower_bound;
  Placement placement;
};

Candidate candidate(const BufferUses& uses, const PartialOrder& order, const MemoryPlanOptions& options) {
  Lifetimes lifetimes(uses, order);
  std::size_t bound = peak_of(lifetimes, order);
  if (!order.is_by_time()) bound = std::max(bound, antichain_of(lifetimes));
  Placement placement = best_placement(lifetimes, bound, options.effort);
  return {std::move(lifetimes), bound, std::move(placement)};
}

using Edge = MemoryPlan::Edge;

/// What must be ordered for a placement that was made for PartialOrder::earliest(); in part it may be already.
std::vector<Edge> required_edges(const BufferUses& uses, const Candidate& made) {
  const auto& [lifetimes, bound, placement] = made;
  std::vector<Edge> edges;
  const auto share_bytes = [&](std::size_t a, std::size_t b) {
    return placement.offsets[a] < placement.offsets[b] + lifetimes.buffers[b].bytes &&
           placement.offsets[b] < placement.offsets[a] + lifetimes.buffers[a].bytes;
  };
  const auto users_of = [&](std::size_t i) -> const auto& { return uses.steps_of[lifetimes.buffers[i].number]; };
  for (std::size_t b = 0; b < lifetimes.buffers.size(); ++b) {
    for (std::size_t a = 0; a < b; ++a) {
      if (lifetimes.together.get(a, b) || !share_bytes(a, b)) continue;
      if (users_of(b).empty()) continue;
      // Its first user precedes the others: it is not held before the program, so it is written first.
      for (const std::uint32_t user : users_of(a)) edges.push_back({user, users_of(b).front()});
    }
  }
  for (const Lifetimes::Overlay& overlay : lifetimes.overlays) {
    if (!share_bytes(overlay.operand, overlay.result)) continue;
    for (const std::uint32_t user : users_of(overlay.operand)) {
      if (user != overlay.step) edges.push_back({user, overlay.step});
    }
  }
  return edges;
}

/// Of edges that agree with the times of PartialOrder::earliest(): those that the program's own order and the others do
/// not imply.
std::vector<Edge> reduced(const BufferUses& uses, std::vector<Edge> edges) {
  const std::vector<PartialOrder::Time> times = PartialOrder::earliest(uses).times();
  std::vector<std::uint32_t> in_time(times.size());
  std::iota(in_time.begin(), in_time.end(), 0u);
  std::stable_sort(in_time.begin(), in_time.end(), [&](auto a, auto b) { return times[a].begin < times[b].begin; });
  // By second step; the first steps in descending order of their end, so that a step comes before its predecessors.
  std::sort(edges.begin(), edges.end(), [&](const Edge& a, const Edge& b) {
    const auto rank = [&](const Edge& edge) { return std::tuple(edge.second, -times[edge.first].end, edge.first); };
    return rank(a) < rank(b);
  });
  BitRows before(times.size(), times.size());
  std::vector<Edge> result;
  const auto add = [&](std::uint32_t first, std::uint32_t second) {
    before.add_row(second, before, first);
    before.set(second, first);
  };
  for (const std::uint32_t step : in_time) {
    for (const std::uint32_t other : uses.before[step]) add(other, step);
    auto edge = std::partition_point(edges.begin(), edges.end(), [&](const Edge& e) { return e.second < step; });
    for (; edge != edges.end() && edge->second == step; ++edge) {
      if (before.get(step, edge->first)) continue;
      add(edge->first, step);
      result.push_back(*edge);
    }
  }
  std::sort(result.begin(), result.end());
  return result;
}

std::size_t unshared_bytes(const MemoryProgram& program) {
  std::size_t sum = 0;
  for (const PlannedBuffer& buffer : program.buffers) {
    if (buffer.view_of != no_buffer) continue;
    sum += aligned_size(buffer.bytes, buffer.alignment);
    aligned_size(sum);  // throws if sums are not representable
  }
  return sum;
}

}  // namespace

std::uint32_t MemoryProgram::add(PlannedBuffer buffer) {
  buffers.push_back(buffer);
  return static_cast<std::uint32_t>(buffers.size() - 1);
}

std::uint32_t MemoryProgram::add(PlannedStep step) {
  steps.push_back(std::move(step));
  return static_cast<std::uint32_t>(steps.size() - 1);
}

MemoryPlan plan_memory(const MemoryProgram& program, const MemoryPlanOptions& options) {
  const BufferUses uses(program);
  MemoryPlan plan{.unshared_bytes = unshared_bytes(program)};
  const bool serial = program.order == StepOrder::serial;
  Candidate found = candidate(uses, serial ? PartialOrder::serial(uses) : PartialOrder::dependences(uses), options);
  if (!serial && options.edges == ExtraEdges::off_critical_path) {
    Candidate ordered = candidate(uses, PartialOrder::earliest(uses), options);
    const auto without = static_cast<double>(found.placement.bytes);
    if (static_cast<double>(ordered.placement.bytes) <= without * (1 - options.least_saving)) {
      plan.edges = reduced(uses, required_edges(uses, ordered));
      plan.saved_by_edges = found.placement.bytes - ordered.placement.bytes;
      found = std::move(ordered);
    }
  }
  std::vector<std::size_t> offset_of(program.buffers.size());
  for (std::size_t i = 0; i < found.lifetimes.buffers.size(); ++i) {
    offset_of[found.lifetimes.buffers[i].number] = found.placement.offsets[i];
    plan.alignment = std::max(plan.alignment, found.lifetimes.buffers[i].alignment);
  }
  for (std::size_t i = 0; i < program.buffers.size(); ++i) {
    plan.offsets.push_back(offset_of[uses.root[i]] + uses.root_offset[i]);
  }
  plan.bytes = found.placement.bytes;
  plan.lower_bound = found.lower_bound;
  return plan;
}

}  // namespace windrow
