#include "schedule_lessons.h"

#include <algorithm>
#include <utility>

namespace windrow {

double ScheduleLessons::excess(const TypedGraph& graph) const {
  const Schedule schedule = make_schedule(graph, SchedulePolicy::learned, &*table_);
  const auto fewest = std::max<std::int64_t>(fewest_batches(graph), 1);
  return static_cast<double>(schedule.batches.size()) / static_cast<double>(fewest);
}

void ScheduleLessons::look_at(TypedGraph graph) {
  constexpr double clearly = 1.05;
  ++looked_at_;
  if (table_ && excess(graph) <= clearly * std::max(usual_, 1.0)) return;
  examples_.push_back(std::move(graph));
  table_ = ScheduleTable::learn(examples_);
  usual_ = 0;
  for (const TypedGraph& example : examples_) usual_ = std::max(usual_, excess(example));
}

}  // namespace windrow
