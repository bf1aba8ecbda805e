// Selects the minibatches from which a runner learns its schedule table: the first one, and others that turn out
// harder. Knows no plan and no layout.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "windrow/batching/schedule.h"

namespace windrow {

/// All minibatches have the same number of types. The same minibatches give the same tables.
///
/// Learning makes schedules of the examples repeatedly. The vertices of all these schedules are limited in total, even
/// if types keep changing; after that, no more tables are learned.
class ScheduleLessons {
 public:
  explicit ScheduleLessons(std::int64_t most_vertices = 20'000'000) : most_vertices_(most_vertices) {}

  /// Examines the next minibatch. Learns anew if the table needs clearly more batches for it, relative to the lower
  /// bound, than for its examples. Not to be called when done().
  void look_at(TypedGraph graph);
  /// Whether learning has ended: more of it would cost more than it saves.
  bool done() const {
    return looked_at_ >= most_looks || examples_.size() >= most_examples || vertices_ >= most_vertices_;
  }
  /// Drops the examples and the table, since the types changed.
  void begin_anew();
  /// The table learned so far; null if there is none.
  const ScheduleTable* table() const { return table_ ? &*table_ : nullptr; }

 private:
  static constexpr int most_looks = 32;
  static constexpr std::size_t most_examples = 4;

  /// The number of batches by the table, as a multiple of the lower bound.
  double excess(const TypedGraph& graph);
  void learn();

  std::int64_t most_vertices_;
  std::vector<TypedGraph> examples_;
  std::optional<ScheduleTable> table_;
  double usual_ = 0;  // the largest excess of the examples
  int looked_at_ = 0;
  std::int64_t vertices_ = 0;  // of all schedules made
};

}  // namespace windrow
