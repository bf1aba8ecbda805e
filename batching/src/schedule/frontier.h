// A graph on its way through a schedule: what is ready, by type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "windrow/batching/schedule.h"

namespace windrow {

/// What of a graph is the same for all its schedules. The graph must outlive it, and it the frontiers.
struct ScheduleFacts {
  /// Throws MisuseError as make_schedule does.
  explicit ScheduleFacts(const TypedGraph& graph);

  const TypedGraph& graph;
  // Those that wait for a vertex, in CSR; one that waits for it twice stands there twice.
  std::vector<std::int32_t> consumer_begin, consumers;
  std::vector<std::int32_t> waits_for;  ///< how many children each has
  std::vector<std::int32_t> order;      ///< each behind its children
  std::vector<std::int32_t> level;
  std::vector<double> mean_level;  ///< by type
};

/// The vertices that wait for nothing that is left.
class Frontier {
 public:
  explicit Frontier(const ScheduleFacts& facts);

  bool empty() const { return left_ == 0; }
  /// How many of a type are ready.
  std::size_t ready(std::int32_t type) const { return ready_[static_cast<std::size_t>(type)].size(); }
  /// The types that have some, by how many, then by number, as a text that is not for people.
  std::string state() const;
  /// Of those types, the one whose vertices lie lowest on average; of two such, the cheaper, after which there may be
  /// more of the other.
  std::int32_t lowest_type() const;
  std::int32_t best_type(const ScheduleTable& table) const;
  /// All that is ready of the type becomes a batch.
  void take(std::int32_t type);
  /// The last batch: vertices.
  std::span<const std::int32_t> last() const;

  Schedule schedule;

 private:
  const ScheduleFacts& facts_;
  std::vector<std::int32_t> waits_for_;
  std::vector<std::vector<std::int32_t>> ready_;  // by type
  std::size_t left_;
};

/// What it is at a vertex: the most vertices of the vertex's own type on a path from there to a root, with itself.
std::vector<std::int32_t> own_heights(const ScheduleFacts& facts);

}  // namespace windrow
