#include "layout.h"

#include <algorithm>
#include <utility>

#include "plan.h"

namespace windrow {

namespace {

std::vector<std::uint32_t> numbers_in(const std::vector<ir::VertexType>& all, const std::vector<std::uint32_t>& types) {
  std::vector<std::uint32_t> numbers;
  for (const ir::VertexType type : types) {
    numbers.push_back(static_cast<std::uint32_t>(std::lower_bound(all.begin(), all.end(), type) - all.begin()));
  }
  return numbers;
}

}  // namespace

/// What is known while a layout is made.
class Layout::Maker {
 public:
  Maker(Layout& layout, std::span<const InputGraph* const> graphs, const Plan& plan, const LayoutOptions& options)
      : layout_(layout), graphs_(graphs), plan_(plan), options_(options) {
    layout_.types.resize(plan.types.size());
  }

  void divide();
  void count();
  void schedule();
  void size_columns();
  void place();

 private:
  void schedule_by_level();
  void schedule_group(Index group);
  void place_run(const InputGraph& graph, const InputGraph::Run& run, std::size_t number);
  void connect_run(const InputGraph& graph, const InputGraph::Run& run, std::size_t number);

  Layout& layout_;
  const std::span<const InputGraph* const> graphs_;
  const Plan& plan_;
  const LayoutOptions& options_;
  std::vector<Index> group_of_;                          // by graph
  std::vector<std::vector<std::uint32_t>> type_number_;  // by graph and type of the graph: the plan's number of it
  // By level, of each group the next row of each type; empty where each place has a row of its own.
  Index levels_ = 0;
  std::vector<Index> next_;
  std::vector<std::int32_t> row_of_;  // by place, counted through all graphs
};

TypedGraph Layout::typed(std::span<const InputGraph* const> graphs, const Plan& plan) {
  TypedGraph all{.types = static_cast<std::int32_t>(plan.types.size())};
  for (const InputGraph* graph : graphs) graph->append_to(all, numbers_in(plan.program.types, graph->types_));
  return all;
}

Layout Layout::make(std::span<const InputGraph* const> graphs, const Plan& plan, const LayoutOptions& options) {
  Layout layout;
  Maker maker(layout, graphs, plan, options);
  maker.divide();
  maker.count();
  maker.schedule();
  maker.size_columns();
  maker.place();
  return layout;
}

void Layout::Maker::divide() {
  for (const InputGraph* graph : graphs_) {
    layout_.first_vertex.push_back(static_cast<std::int32_t>(layout_.vertices));
    layout_.names.push_back(graph->name_);
    layout_.vertices += graph->vertices();
    if (layout_.vertices > INT32_MAX) {
      throw MisuseError("a minibatch of " + std::to_string(layout_.vertices) +
                        " vertices or more; expected at most 2147483647");
    }
  }
  // By the shapes alone, never by the number of workers: the same minibatch gives the same bits.
  const Index most = std::min(options_.groups, static_cast<Index>(graphs_.size()));
  layout_.groups = std::clamp<Index>(layout_.vertices / options_.group_vertices, 1, std::max<Index>(most, 1));
  Index before = 0;
  for (const InputGraph* graph : graphs_) {
    group_of_.push_back(std::min(
        layout_.groups - 1, (before + graph->vertices() / 2) * layout_.groups / std::max<Index>(layout_.vertices, 1)));
    before += graph->vertices();
  }
}

void Layout::Maker::count() {
  for (TypeRows& type : layout_.types) type.begin.assign(static_cast<std::size_t>(layout_.groups) + 1, 0);
  const auto& all = plan_.program.types;
  for (std::size_t g = 0; g < graphs_.size(); ++g) {
    const auto& number = type_number_.emplace_back(numbers_in(all, graphs_[g]->types_));
    const auto behind = static_cast<std::size_t>(group_of_[g]) + 1;
    for (const InputGraph::Run& run : graphs_[g]->runs_) {
      layout_.types[number[run.type]].begin[behind] += run.end - run.begin;
    }
  }
  for (std::size_t t = 0; t < layout_.types.size(); ++t) {
    TypeRows& type = layout_.types[t];
    for (std::size_t i = 1; i < type.begin.size(); ++i) type.begin[i] += type.begin[i - 1];
    type.rows = type.begin.back();
    const Index children = plan_.types[t].children;
    type.first_slot = {static_cast<std::int32_t>(layout_.edges), static_cast<std::int32_t>(layout_.consumers)};
    layout_.edges += type.rows * children;
    layout_.consumers += children > 0 ? type.rows : 0;
  }
  if (layout_.edges > INT32_MAX) {
    throw MisuseError("a minibatch of " + std::to_string(layout_.edges) + " edges; expected at most 2147483647");
  }
}

void Layout::Maker::schedule() {
  row_of_.resize(static_cast<std::size_t>(layout_.vertices));
  layout_.batches.resize(static_cast<std::size_t>(layout_.groups));
  if (options_.schedule == SchedulePolicy::level) return schedule_by_level();
  for (Index group = 0; group < layout_.groups; ++group) schedule_group(group);
}

/// The levels are known since the graphs were loaded, so this takes a step for each run and none for a vertex.
void Layout::Maker::schedule_by_level() {
  for (const InputGraph* graph : graphs_) levels_ = std::max<Index>(levels_, graph->levels());
  const auto types = static_cast<Index>(layout_.types.size());
  const auto cell = [&](Index group, Index level, Index type) {
    return static_cast<std::size_t>((group * levels_ + level) * types + type);
  };
  next_.assign(cell(layout_.groups, 0, 0), 0);
  for (std::size_t g = 0; g < graphs_.size(); ++g) {
    for (const InputGraph::Run& run : graphs_[g]->runs_) {
      next_[cell(group_of_[g], run.level, type_number_[g][run.type])] += run.end - run.begin;
    }
  }
  for (Index group = 0; group < layout_.groups; ++group) {
    std::vector<Index> next;  // by type
    for (const TypeRows& type : layout_.types) next.push_back(type.begin[static_cast<std::size_t>(group)]);
    for (Index level = 0; level < levels_; ++level) {
      for (Index type = 0; type < types; ++type) {
        Index& rows = next_[cell(group, level, type)];
        Index& first = next[static_cast<std::size_t>(type)];
        if (rows > 0) {
          layout_.batches[static_cast<std::size_t>(group)].push_back(
              {static_cast<std::uint32_t>(type), first, first + rows});
        }
        first += std::exchange(rows, first);
      }
    }
  }
}

void Layout::Maker::schedule_group(Index group) {
  TypedGraph all{.types = static_cast<std::int32_t>(layout_.types.size())};
  for (std::size_t g = 0; g < graphs_.size(); ++g) {
    if (group_of_[g] == group) graphs_[g]->append_to(all, type_number_[g]);
  }
  const Schedule schedule = make_schedule(all, options_.schedule, options_.table);
  // Groups are runs of graphs.
  const auto first_graph = std::lower_bound(group_of_.begin(), group_of_.end(), group) - group_of_.begin();
  const std::int32_t first =
      all.vertices() > 0 ? layout_.first_vertex[static_cast<std::size_t>(first_graph)] : std::int32_t{0};
  std::vector<Index> next;  // by type
  for (const TypeRows& type : layout_.types) next.push_back(type.begin[static_cast<std::size_t>(group)]);
  for (const Schedule::Batch& batch : schedule.batches) {
    Index& row = next[static_cast<std::size_t>(batch.type)];
    layout_.batches[static_cast<std::size_t>(group)].push_back(
        {static_cast<std::uint32_t>(batch.type), row, row + batch.end - batch.begin});
    for (std::int32_t i = batch.begin; i < batch.end; ++i, ++row) {
      row_of_[static_cast<std::size_t>(first + schedule.order[static_cast<std::size_t>(i)])] =
          static_cast<std::int32_t>(row);
    }
  }
}

void Layout::Maker::size_columns() {
  const ir::Function& function = *plan_.program.function;
  for (std::size_t t = 0; t < layout_.types.size(); ++t) {
    TypeRows& type = layout_.types[t];
    const auto rows = static_cast<std::size_t>(type.rows);
    type.slot.assign(rows, {});
    type.vertex.resize(rows);
    for (std::size_t i = 0; i < function.index_pulls.size(); ++i) {
      const auto width = plan_.types[t].pulls_indices[i] ? function.index_pulls[i].width : 0;
      type.indices.push_back({width, std::vector<std::int32_t>(rows * static_cast<std::size_t>(width))});
    }
    for (std::size_t i = 0; i < function.pulls.size(); ++i) {
      const auto width = plan_.types[t].pulls_values[i] ? function.pulls[i].width : 0;
      type.values.push_back({width, std::vector<float>(rows * static_cast<std::size_t>(width))});
    }
  }
}

void Layout::Maker::place() {
  // Children may come later in the order of types: all rows first, then all slots.
  for (std::size_t g = 0; g < graphs_.size(); ++g) {
    for (const InputGraph::Run& run : graphs_[g]->runs_) place_run(*graphs_[g], run, g);
    for (const InputGraph::Run& run : graphs_[g]->runs_) connect_run(*graphs_[g], run, g);
  }
  for (TypeRows& type : layout_.types) std::sort(type.further.begin(), type.further.end());
}

/// The inputs of its vertices go to their rows.
void Layout::Maker::place_run(const InputGraph& graph, const InputGraph::Run& run, std::size_t number) {
  const std::uint32_t t = type_number_[number][run.type];
  TypeRows& type = layout_.types[t];
  const std::int32_t first = layout_.first_vertex[number];
  const auto copy = [&](Index row, Index begin, Index end) {
    for (std::size_t i = 0; i < type.indices.size(); ++i) type.indices[i].copy(row, graph.indices_[i], begin, end);
    for (std::size_t i = 0; i < type.values.size(); ++i) type.values[i].copy(row, graph.values_[i], begin, end);
  };
  Index* next = nullptr;
  if (!next_.empty()) {
    next = &next_[static_cast<std::size_t>(group_of_[number] * levels_ + run.level) * layout_.types.size() + t];
    copy(*next, run.begin, run.end);
  }
  for (std::int32_t place = run.begin; place < run.end; ++place) {
    std::int32_t& row = row_of_[static_cast<std::size_t>(first + place)];
    if (next != nullptr) {
      row = static_cast<std::int32_t>((*next)++);
    } else {
      copy(row, place, place + 1);
    }
    type.vertex[static_cast<std::size_t>(row)] = first + graph.vertex_[static_cast<std::size_t>(place)];
  }
}

/// The edges to its vertices get their slots.
void Layout::Maker::connect_run(const InputGraph& graph, const InputGraph::Run& run, std::size_t number) {
  const auto children = static_cast<std::int32_t>(ir::children(*graph.function_, graph.types_[run.type]));
  if (children == 0) return;
  const TypeRows& consumer = layout_.types[type_number_[number][run.type]];
  const std::int32_t* const row_of = row_of_.data() + layout_.first_vertex[number];
  auto child = graph.children_.begin() + run.first_child;
  for (std::int32_t place = run.begin; place < run.end; ++place) {
    Slot slot{consumer.first_slot.edge + children * row_of[place], consumer.first_slot.consumer + row_of[place]};
    for (std::int32_t k = 0; k < children; ++k, ++slot.edge, ++child) {
      TypeRows& producer = layout_.types[type_number_[number][graph.type_[static_cast<std::size_t>(*child)]]];
      Slot& first = producer.slot[static_cast<std::size_t>(row_of[*child])];
      if (first.edge < 0) {
        first = slot;
      } else {
        producer.further.push_back({row_of[*child], slot});
      }
    }
  }
}

}  // namespace windrow
