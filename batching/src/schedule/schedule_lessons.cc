#include "schedule/schedule_lessons.h"

#include <algorithm>
#include <utility>

namespace windrow {

void ScheduleLessons::begin_anew() {
  examples_.clear();
  table_.reset();
  usual_ = 0;
  looked_at_ = 0;
}

double ScheduleLessons::excess(const TypedGraph& graph) {
  vertices_ += graph.vertices();
  const Schedule schedule = make_schedule(graph, SchedulePolicy::learned, &*table_);
  const auto fewest = std::max<std::int64_t>(fewest_batches(graph), 1);
  return static_cast<double>(schedule.batches.size()) / static_cast<double>(fewest);
}

void ScheduleLessons::look_at(TypedGraph graph) {
  constexpr double clearly = 1.05;
  ++looked_at_;
  if (table_ && excess(graph) <= clearly * std::max(usual_, 1.0)) return;
  examples_.push_back(std::move(graph));
  learn();
  usual_ = 0;
  for (const TypedGraph& example : examples_) usual_ = std::max(usual_, excess(example));
}

void ScheduleLessons::learn() {
  ScheduleTable::Options options;
  std::int64_t all = 0;
  for (const TypedGraph& example : examples_) all += example.vertices();
  const std::int64_t mean = std::max<std::int64_t>(1, all / static_cast<std::int64_t>(examples_.size()));
  const std::int64_t affordable = std::max<std::int64_t>(0, most_vertices_ - vertices_) / mean;
  options.episodes = static_cast<int>(std::min<std::int64_t>(options.episodes, affordable));
  table_ = ScheduleTable::learn(examples_, options);
  vertices_ += options.episodes * mean;
}

}  // namespace windrow
