// Schedules: in which batches the vertices of a graph are computed. Start here for what decides that.
//
//   windrow::TypedGraph graph = ...;
//   const windrow::Schedule schedule = windrow::make_schedule(graph, windrow::SchedulePolicy::agenda);
//   schedule.batches.size();               // kernel launches, so to say
//   windrow::fewest_batches(graph);        // no schedule has less
//
// Pure: no engine, no device, no memory but the result's. A batch is of vertices of one type, none of which waits for
// another one of them.
//
//   policy   a batch is                                                            after
//   level    the vertices of one type and level, level by level                    Cavs (Xu et al. 2018)
//   depth    the same, found anew for each graph; the levels are not remembered    Fold (Looks et al. 2017)
//   agenda   all that is ready of the type whose vertices lie lowest on average    DyNet (Neubig et al. 2017)
//   learned  all that is ready of the type that a table names for what is ready    ED-Batch (Chen et al. 2023)
//   serial   one vertex
//
// Threads: everything here may be called by any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace windrow {

/// Vertices, each of a type, and what each of them waits for. A value.
struct TypedGraph {
  std::int32_t types = 0;
  std::vector<std::int32_t> type = {};          ///< of each vertex, from 0 to types - 1
  std::vector<std::int32_t> child_begin = {0};  ///< children in CSR, as in GraphData; no_child is passed over
  std::vector<std::int32_t> children = {};
  std::vector<std::int64_t> costs = {};  ///< of a vertex of each type; empty where they do not matter

  std::int32_t vertices() const { return static_cast<std::int32_t>(type.size()); }
};

struct Schedule {
  struct Batch {
    std::int32_t type;
    std::int32_t begin, end;  ///< places in `order`
    friend bool operator==(const Batch&, const Batch&) = default;
  };
  std::vector<std::int32_t> order = {};  ///< each vertex once, behind all that it waits for
  std::vector<Batch> batches = {};       ///< one behind the other

  double mean_width() const {
    return batches.empty() ? 0 : static_cast<double>(order.size()) / static_cast<double>(batches.size());
  }
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

enum class SchedulePolicy : std::uint8_t { level, depth, agenda, learned, serial };

/// "level", "depth", "agenda", "learned" or "serial"; anything else throws MisuseError.
SchedulePolicy parse_schedule_policy(std::string_view name);
std::string_view to_string(SchedulePolicy policy);

/// What policy `learned` goes by: for each state of the frontier, the types that have ready vertices by how many they
/// have, the type to compute next. Immutable.
class ScheduleTable {
 public:
  struct Options {
    int episodes = 2000;  ///< at most; each is one schedule of one of the examples
    double rate = 0.1;    ///< of learning
    std::uint64_t seed = 1;
  };
  /// Learns from examples by Q-learning (Watkins 1989). A batch costs 1, less by how much it brings the fewest batches
  /// down that are left: so the sum is what a schedule has more than fewest_batches(). Ends early when the examples'
  /// schedules have no more than these. Throws MisuseError without an example, or if their numbers of types differ.
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

/// Throws MisuseError for a vertex that is its own descendant, a type or a child out of range; and for `learned`, which
/// needs a table of as many types. Time and memory grow with vertices and children, and with batches times types.
Schedule make_schedule(const TypedGraph& graph, SchedulePolicy policy, const ScheduleTable* table = nullptr);

/// No schedule has fewer batches: for each type the most vertices of it on any path, added up. Throws as make_schedule
/// does. Time grows with children times types.
std::int64_t fewest_batches(const TypedGraph& graph);

}  // namespace windrow
