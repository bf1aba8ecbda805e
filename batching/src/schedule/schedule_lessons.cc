#include "schedule/schedule_lessons.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <span>
#include <string>
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

void ScheduleLessons::write(NumberWriter& to) const {
  to.add(std::bit_cast<std::int64_t>(usual_));
  to.add(looked_at_);
  to.add(vertices_);
  to.add(static_cast<std::int64_t>(examples_.size()));
  for (const TypedGraph& example : examples_) {
    to.add(example.types);
    to.add_list(example.type);
    to.add_list(example.child_begin);
    to.add_list(example.children);
    to.add_list(example.costs);
  }
  to.add(table_ ? static_cast<std::int64_t>(table_->best_.size()) : -1);
  if (!table_) return;
  to.add(table_->types_);
  const std::map<std::string, std::int32_t> ascending(table_->best_.begin(), table_->best_.end());
  for (const auto& [state, type] : ascending) {
    to.add_list(state);
    to.add(type);
  }
}

namespace {

/// Whether a state of the frontier, which is a list of types, contains the type: there would be no vertices to take
/// else.
bool lists(std::span<const char> state, std::int32_t type) {
  if (state.size() % sizeof type != 0) return false;
  for (std::size_t i = 0; i < state.size(); i += sizeof type) {
    std::int32_t listed = 0;
    std::memcpy(&listed, state.data() + i, sizeof listed);
    if (listed == type) return true;
  }
  return false;
}

}  // namespace

void ScheduleLessons::read(NumberReader& from) {
  ScheduleLessons made(most_vertices_);
  made.usual_ = std::bit_cast<double>(from.next());
  made.looked_at_ = static_cast<int>(from.next());
  made.vertices_ = from.next();
  for (std::size_t left = from.count(); left > 0; --left) {
    TypedGraph& example = made.examples_.emplace_back();
    example.types = static_cast<std::int32_t>(from.next());
    example.type = from.list<std::int32_t>();
    example.child_begin = from.list<std::int32_t>();
    example.children = from.list<std::int32_t>();
    example.costs = from.list<std::int64_t>();
    make_schedule(example, SchedulePolicy::level);  // throws for what is no graph
  }
  if (std::int64_t states = from.next(); states >= 0) {
    ScheduleTable& table = made.table_.emplace();
    table.types_ = static_cast<std::int32_t>(from.next());
    for (; states > 0; --states) {
      const std::vector<char> state = from.list<char>();
      const std::int64_t type = from.next();
      if (type < 0 || type >= table.types_ || !lists(state, static_cast<std::int32_t>(type))) NumberReader::refuse();
      table.best_.emplace(std::string(state.begin(), state.end()), static_cast<std::int32_t>(type));
    }
  }
  *this = std::move(made);
}

}  // namespace windrow
