// Schedules: in which batches the vertices of a graph are computed. Start here for scheduling.
//
//   windrow::TypedGraph graph = ...;
//   const windrow::Schedule schedule = windrow::make_schedule(graph, windrow::SchedulePolicy::agenda);
//   schedule.batches.size();         // about the number of kernel launches
//   windrow::fewest_batches(graph);  // no schedule has fewer batches
//
// Pure functions, without engine, device or memory beyond their results. A batch consists of vertices of one type, none
// of which depends on another one of them.
//
//   policy   a batch contains                                                      source
//   level    the vertices of one type on one level                                 Cavs (Xu et al. 2018)
//   depth    the same; levels are computed anew for each minibatch, not stored     Fold (Looks et al. 2017)
//   agenda   all ready vertices of the type with the lowest mean level             DyNet (Neubig et al. 2017)
//   learned  all ready vertices of the type that a table gives for this frontier   ED-Batch (Chen et al. 2023)
//   serial   one vertex
//
// A vertex is ready when all its children are in earlier batches. The frontier is the set of ready vertices. If the
// table of policy `learned` does not contain a frontier, it chooses as agenda.
//
// A runner with policy agenda or learned computes a minibatch by level where each level has vertices of one type: no
// schedule has fewer batches then, and levels are already known.
//
// Threads: every function may be called from any thread.
#pragma once
#include "windrow/engine/requirements.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
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

enum class SchedulePolicy : std::uint8_t { level, depth, agenda, learned, serial };

/// Parses "level", "depth", "agenda", "learned" or "serial". Throws MisuseError for any other name.
SchedulePolicy parse_schedule_policy(std::string_view name);
std::string_view to_string(SchedulePolicy policy);

/// The table of policy `learned`: it maps each state of the frontier to the type to compute next. A state is the list
/// of types that have ready vertices, by descending number of ready vertices. Immutable.
class ScheduleTable {
 public:
  struct Options {
    int episodes = 2000;  ///< the most episodes; each one is one schedule of one example
    double learning_rate = 0.1;
    std::uint64_t seed = 1;
  };
  /// Learns a table from examples by Q-learning (Watkins 1989). Each batch costs 1, minus the reduction of the lower
  /// bound on the batches that remain, so the total cost is the excess of a schedule over fewest_batches(). Ends early
  /// when the schedules of the examples have no excess. Throws MisuseError without examples, or if their numbers of
  /// types differ.
  static ScheduleTable learn(std::span<const TypedGraph> examples, const Options& options);
  static ScheduleTable learn(std::span<const TypedGraph> examples) { return learn(examples, Options()); }

  std::int32_t types() const { return types_; }
  std::size_t states() const { return best_.size(); }

 private:
  friend class Frontier;
  friend class ScheduleLearner;

  std::int32_t types_ = 0;
  std::unordered_map<std::string, std::int32_t> best_;  // by state
};

/// Makes a schedule. Policy `learned` needs a table with as many types as the graph. Throws MisuseError for invalid
/// offsets, for a cycle, for a type or child out of range, for costs of another number of types, and for a missing or
/// unsuitable table. Time and memory grow with vertices, children, and batches times types.
Schedule make_schedule(const TypedGraph& graph, SchedulePolicy policy, const ScheduleTable* table = nullptr);

/// A lower bound on the number of batches of any schedule: the largest number of vertices of a type on any path, summed
/// over types. Throws as make_schedule() does. Time grows with children times types.
std::int64_t fewest_batches(const TypedGraph& graph);

}  // namespace windrow
