// Assigns rows to vertices: ordered by type, group and batch of the schedule.
#include <algorithm>
#include <utility>

#include "layout/layout_maker.h"

namespace windrow {

/// Finds the plan's numbers of a graph's types. Call for all graphs in order.
void Layout::Maker::number_types(std::size_t graph) {
  InputGraph::prefetch_after(graphs_, graph);
  const InputGraph& of = *graphs_[graph];
  scratch_.type_begin.push_back(scratch_.type_numbers.size());
  for (std::int32_t t = 0; t < of.types_; ++t) scratch_.type_numbers.push_back(plan_.program.number_of(of.type(t)));
}

void Layout::Maker::schedule() {
  scratch_.type_begin.clear();
  scratch_.type_numbers.clear();
  size_again(scratch_.row_of, static_cast<std::size_t>(layout_.vertices));
  layout_.batches.resize(static_cast<std::size_t>(layout_.groups));
  for (auto& of_group : layout_.batches) of_group.clear();
  for (TypeRows& type : layout_.types) type.begin.assign(static_cast<std::size_t>(layout_.groups) + 1, 0);
  for (std::size_t g = 0; g < graphs_.size(); ++g) number_types(g);
  if (options_.schedule == SchedulePolicy::level) {
    count_by_level();
    by_level_ = true;
  } else if (options_.schedule == SchedulePolicy::agenda || options_.schedule == SchedulePolicy::complete) {
    count_by_level();
    by_level_ = level_is_best();
  }
  if (by_level_) return schedule_by_level();
  count();
  for (Index group = 0; group < layout_.groups; ++group) schedule_group(group);
}

/// Turns the numbers of rows of each group and type into offsets.
void Layout::Maker::begin_types() {
  Index first = 0;
  for (TypeRows& type : layout_.types) {
    for (std::size_t i = 1; i < type.begin.size(); ++i) type.begin[i] += type.begin[i - 1];
    type.rows = type.begin.back();
    type.first = std::exchange(first, first + type.rows);
  }
}

void Layout::Maker::count() {
  for (std::size_t g = 0; g < graphs_.size(); ++g) {
    each_type_run(g, [&](const InputGraph::TypeRun& run, std::uint32_t t) {
      layout_.types[t].begin[static_cast<std::size_t>(scratch_.group_of[g]) + 1] += run.end - run.begin;
    });
  }
  begin_types();
}

/// Counts the rows of each group, level and type. Levels were computed when the graphs were loaded, so this takes time
/// for each run, not for each vertex.
void Layout::Maker::count_by_level() {
  const auto type_count = static_cast<Index>(layout_.types.size());
  size_again(scratch_.next, cell(layout_.groups, 0, 0));
  std::fill(scratch_.next.begin(), scratch_.next.end(), 0);
  for (std::size_t g = 0; g < graphs_.size(); ++g) {
    std::int32_t* const cells = scratch_.next.data() + cell(scratch_.group_of[g], 0, 0);
    each_type_run(g, [&](const InputGraph::TypeRun& run, std::uint32_t t) {
      cells[run.level * type_count + t] += run.end - run.begin;
    });
  }
}

/// Whether each level of a group has vertices of one type only. Then policy level gives one batch per level. No
/// schedule has fewer batches, since each vertex of the longest path needs its own batch.
bool Layout::Maker::level_is_best() const {
  const std::size_t types = layout_.types.size();
  for (auto level = scratch_.next.begin(); level != scratch_.next.end(); level += static_cast<std::ptrdiff_t>(types)) {
    if (std::count_if(level, level + static_cast<std::ptrdiff_t>(types), [](auto rows) { return rows > 0; }) > 1) {
      return false;
    }
  }
  return true;
}

/// Turns the counts of rows in scratch_.next into next rows.
void Layout::Maker::schedule_by_level() {
  const auto type_count = static_cast<Index>(layout_.types.size());
  const auto each_cell = [&](Index group, auto visit) {
    for (Index level = 0; level < levels_; ++level) {
      for (Index t = 0; t < type_count; ++t)
        visit(layout_.types[static_cast<std::size_t>(t)], t, scratch_.next[cell(group, level, t)]);
    }
  };
  for (Index group = 0; group < layout_.groups; ++group) {
    const auto behind = static_cast<std::size_t>(group) + 1;
    each_cell(group, [&](TypeRows& type, Index, std::int32_t rows) { type.begin[behind] += rows; });
  }
  begin_types();
  std::vector<Index>& next = scratch_.next_row;
  next.assign(layout_.types.size(), 0);
  for (Index group = 0; group < layout_.groups; ++group) {
    auto& of_group = layout_.batches[static_cast<std::size_t>(group)];
    each_cell(group, [&](TypeRows& type, Index t, std::int32_t& rows) {
      Index& row = next[static_cast<std::size_t>(t)];
      if (rows > 0) of_group.push_back({static_cast<std::uint32_t>(t), row, row + rows});
      row += std::exchange(rows, static_cast<std::int32_t>(type.first + row));
    });
  }
  for (std::size_t g = 0; g < graphs_.size(); ++g) assign_rows(g);
}

/// By level, the vertices of a run have consecutive rows.
void Layout::Maker::assign_rows(std::size_t graph) {
  std::int32_t* const row_of = rows_of(graph);
  const auto type_count = static_cast<Index>(layout_.types.size());
  std::int32_t* const cells = scratch_.next.data() + cell(scratch_.group_of[graph], 0, 0);
  each_type_run(graph, [&](const InputGraph::TypeRun& run, std::uint32_t t) {
    std::int32_t& row = cells[run.level * type_count + t];
    for (std::int32_t place = run.begin; place < run.end; ++place) row_of[place] = row++;
  });
}

void Layout::Maker::schedule_group(Index group) {
  TypedGraph all = nothing_of(plan_);
  for (std::size_t g = 0; g < graphs_.size(); ++g) {
    if (scratch_.group_of[g] == group)
      graphs_[g]->append_to(all, scratch_.type_numbers.data() + scratch_.type_begin[g], scratch_.numbers);
  }
  const Schedule schedule = make_schedule(all, options_.schedule);
  // Groups consist of consecutive graphs.
  const auto first_graph =
      std::lower_bound(scratch_.group_of.begin(), scratch_.group_of.end(), group) - scratch_.group_of.begin();
  const std::int32_t first =
      all.vertices() > 0 ? layout_.first_vertex[static_cast<std::size_t>(first_graph)] : std::int32_t{0};
  std::vector<Index> next;  // by type
  for (const TypeRows& type : layout_.types) next.push_back(type.begin[static_cast<std::size_t>(group)]);
  for (const Schedule::Batch& batch : schedule.batches) {
    Index& row = next[static_cast<std::size_t>(batch.type)];
    layout_.batches[static_cast<std::size_t>(group)].push_back(
        {static_cast<std::uint32_t>(batch.type), row, row + batch.end - batch.begin});
    for (std::int32_t i = batch.begin; i < batch.end; ++i, ++row) {
      scratch_.row_of[static_cast<std::size_t>(first + schedule.order[static_cast<std::size_t>(i)])] =
          static_cast<std::int32_t>(layout_.types[static_cast<std::size_t>(batch.type)].first + row);
    }
  }
}

}  // namespace windrow
