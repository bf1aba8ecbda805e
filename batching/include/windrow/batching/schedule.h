// Schedules: in which batches the vertices of a graph are computed. Start here for scheduling.
//
//   windrow::TypedGraph graph = ...;
//   const windrow::Schedule schedule = windrow::make_schedule(graph, windrow::SchedulePolicy::agenda);
//   schedule.batches.size();         // about the number of kernel launches
//   windrow::fewest_batches(graph);  // no schedule has fewer batches
//
// Pure functions, without engine, device or memory beyond their results. A batch consists of vertices of one type that
// do not depend on each other.
//
//   policy   a batch contains                                                      source
//   level    the vertices of one type on one level                                 Cavs (Xu et al. 2018)
//   depth    the same; levels are computed anew for each minibatch, not stored     Fold (Looks et al. 2017)
//   agenda   all ready vertices of the type with the lowest mean level             DyNet (Neubig et al. 2017)
//   complete all ready vertices of the type that loses least by not waiting        cf. ED-Batch (Chen et al. 2023)
//   serial   one vertex
//
// A vertex is ready when all its children are in earlier batches.
//
// With policy agenda or complete, a runner computes a minibatch by level if each level has vertices of one type only:
// no schedule has fewer batches then, and levels are already known.
//
// Threads: every function may be called from any thread.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace windrow {

/// Vertices with their types and children. A value.
struct TypedGraph {
  std::int32_t types = 0;
  std::vector<std::int32_t> type = {};          ///< of each vertex, 0 to types - 1
  std::vector<std::int32_t> child_begin = {0};  ///< children in CSR format, as in GraphData; no_child is skipped
  std::vector<std::int32_t> children = {};
  std::vector<std::int64_t> costs = {};  ///< of one vertex, for each type; empty if costs do not matter

  std::int32_t vertices() const { return static_cast<std::int32_t>(type.size()); }
};

struct Schedule {
  struct Batch {
    std::int32_t type;
    std::int32_t begin, end;  ///< range in `order`
    friend bool operator==(const Batch&, const Batch&) = default;
  };
  std::vector<std::int32_t> order = {};  ///< each vertex once, after all its children
  std::vector<Batch> batches = {};       ///< in the order of computation, contiguous in `order`

  /// Vertices per batch; 0 without batches.
  double mean_width() const {
    return batches.empty() ? 0 : static_cast<double>(order.size()) / static_cast<double>(batches.size());
  }
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

enum class SchedulePolicy : std::uint8_t {
  level,
  depth,
  agenda,
  complete,
  serial,
  learned [[deprecated("complete needs as few batches, and learns nothing")]] = complete
};

/// Parses "level", "depth", "agenda", "complete" or "serial". Throws MisuseError for any other name.
SchedulePolicy parse_schedule_policy(std::string_view name);
std::string_view to_string(SchedulePolicy policy);

/// Makes a schedule. Throws MisuseError for invalid offsets, for a cycle, for a type or child out of range, and for
/// costs of another number of types. Time and memory grow with vertices, children, and batches times types.
Schedule make_schedule(const TypedGraph& graph, SchedulePolicy policy);

/// A lower bound on the number of batches of any schedule: the largest number of vertices of a type on any path, summed
/// over types. Throws as make_schedule() does. Time grows with children times types.
std::int64_t fewest_batches(const TypedGraph& graph);

}  // namespace windrow
