// What a runner's schedule table is learned from: the first of its minibatches, and others that turn out harder. It
// knows no plan and no layout.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "windrow/batching/schedule.h"

namespace windrow {

/// Of minibatches with one number of types. The same minibatches give the same tables.
///
/// Learning is to make schedules of its examples again and again. It ends when they had so many vertices together, also
/// if types change for ever: then there are no more tables.
class ScheduleLessons {
 public:
  static constexpr std::int64_t most_vertices = 20'000'000;

  /// Looks at the next minibatch, and learns anew if the table needs clearly more batches for it than for those that it
  /// was learned from, both by their lower bounds. It no longer looks when `done()`.
  void look_at(TypedGraph graph);
  /// That was enough; learning costs more than batches.
  bool done() const {
    return looked_at_ >= most_looks || examples_.size() >= most_examples || vertices_ >= most_vertices;
  }
  /// The types are others from here on.
  void begin_anew();
  /// Of what was looked at; null before.
  const ScheduleTable* table() const { return table_ ? &*table_ : nullptr; }

 private:
  static constexpr int most_looks = 32;
  static constexpr std::size_t most_examples = 4;

  /// Its batches by the table, as a multiple of the fewest.
  double excess(const TypedGraph& graph);
  void learn();

  std::vector<TypedGraph> examples_;
  std::optional<ScheduleTable> table_;
  double usual_ = 0;  // the largest excess of the examples
  int looked_at_ = 0;
  std::int64_t vertices_ = 0;  // of all schedules that were made
};

}  // namespace windrow
