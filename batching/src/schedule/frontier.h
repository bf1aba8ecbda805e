// The frontier of a graph while it is scheduled: the ready vertices, by type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "windrow/batching/schedule.h"

namespace windrow {

/// The number of a vertex, type or level as an index.
inline std::size_t at(std::int32_t number) { return static_cast<std::size_t>(number); }

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
  /// The types that have ready vertices, by descending number of these, then by type; encoded as a key.
  std::string state() const;
  /// The ready type with the lowest mean level. Of two such types, the one with lower costs: meanwhile more vertices of
  /// the other may become ready.
  std::int32_t lowest_type() const;
  /// The same order.
  bool is_lower(std::int32_t type, std::int32_t than) const;
  std::int32_t best_type(const ScheduleTable& table) const;
  /// Makes a batch of all ready vertices of the type.
  void take(std::int32_t type);
  /// The vertices of the last batch.
  std::span<const std::int32_t> last() const;

  Schedule schedule;

 private:
  const ScheduleFacts& facts_;
  std::vector<std::int32_t> waits_for_;
  std::vector<std::vector<std::int32_t>> ready_;  // by type
  std::size_t left_;
};

/// By vertex: the largest number of vertices of its own type on a path from it to a root, including itself.
std::vector<std::int32_t> own_heights(const ScheduleFacts& facts);

/// A schedule that often has fewer batches than agenda, and takes longer to make. A batch is of the ready type that
/// lacks the smallest share: of its vertices that are left and have no more vertices of the type below them than a
/// ready one has, those that are not ready. A type that lacks none loses nothing by not waiting.
Schedule make_complete_schedule(const TypedGraph& graph);

}  // namespace windrow
