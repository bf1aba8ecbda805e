#include "layout.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace windrow {

namespace {

std::vector<std::uint32_t> numbers_in(const std::vector<ir::VertexType>& all,
                                      const std::vector<ir::VertexType>& types) {
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
  void place_edges();
  void size_columns();
  void place_inputs();
  void fill_columns();
  void connect();

 private:
  void schedule_by_level();
  void schedule_group(Index group);
  /// Calls visit(graph, run, number of the graph, the run's type in the layout).
  template <class Visit>
  void each_run(Visit visit) const;
  void place_run(const InputGraph& graph, const InputGraph::Run& run, const std::int32_t* row, TypeRows& type) const;
  void place_edges_of_run(const InputGraph& graph, const InputGraph::Run& run, const std::int32_t* row,
                          TypeRows& type) const;
  /// What a column holds that graphs do not know.
  void fill(const ir::IndexField& field, const TypeRows& type, std::vector<std::int32_t>& to) const;
  static void fill_shares(const TypeRows& type, std::vector<float>& to);
  void connect_run(const InputGraph& graph, const InputGraph::Run& run, std::size_t number);

  Layout& layout_;
  const std::span<const InputGraph* const> graphs_;
  const Plan& plan_;
  const LayoutOptions& options_;
  std::vector<Index> group_of_;                          // by graph
  std::vector<std::vector<std::uint32_t>> type_number_;  // by graph and type of the graph: the plan's number of it
  std::vector<std::int32_t> row_of_;                     // by place, counted through all graphs
};

template <class Visit>
void Layout::Maker::each_run(Visit visit) const {
  for (std::size_t g = 0; g < graphs_.size(); ++g) {
    for (const InputGraph::Run& run : graphs_[g]->runs_) visit(*graphs_[g], run, g, type_number_[g][run.type]);
  }
}

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
  maker.place_edges();
  maker.size_columns();
  maker.place_inputs();
  maker.fill_columns();
  maker.connect();
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
  for (const InputGraph* graph : graphs_) type_number_.push_back(numbers_in(plan_.program.types, graph->types_));
  each_run([&](const InputGraph&, const InputGraph::Run& run, std::size_t g, std::uint32_t t) {
    layout_.types[t].begin[static_cast<std::size_t>(group_of_[g]) + 1] += run.end - run.begin;
  });
  for (TypeRows& type : layout_.types) {
    for (std::size_t i = 1; i < type.begin.size(); ++i) type.begin[i] += type.begin[i - 1];
    type.rows = type.begin.back();
  }
}

void Layout::Maker::schedule() {
  row_of_.resize(static_cast<std::size_t>(layout_.vertices));
  layout_.batches.resize(static_cast<std::size_t>(layout_.groups));
  if (options_.schedule == SchedulePolicy::level) return schedule_by_level();
  for (Index group = 0; group < layout_.groups; ++group) schedule_group(group);
}

/// The levels are known since the graphs were loaded: what is looked at are runs.
void Layout::Maker::schedule_by_level() {
  Index levels = 0;
  for (const InputGraph* graph : graphs_) levels = std::max<Index>(levels, graph->levels());
  const auto type_count = static_cast<Index>(layout_.types.size());
  const auto cell = [&](Index group, Index level, Index type) {
    return static_cast<std::size_t>((group * levels + level) * type_count + type);
  };
  std::vector<Index> next(cell(layout_.groups, 0, 0), 0);  // first how many rows, then which is the next
  each_run([&](const InputGraph&, const InputGraph::Run& run, std::size_t g, std::uint32_t t) {
    next[cell(group_of_[g], run.level, t)] += run.end - run.begin;
  });
  for (Index group = 0; group < layout_.groups; ++group) {
    std::vector<Index> first;  // by type
    for (const TypeRows& type : layout_.types) first.push_back(type.begin[static_cast<std::size_t>(group)]);
    for (Index level = 0; level < levels; ++level) {
      for (Index type = 0; type < type_count; ++type) {
        const Index rows = std::exchange(next[cell(group, level, type)], first[static_cast<std::size_t>(type)]);
        if (rows == 0) continue;
        const Index begin = first[static_cast<std::size_t>(type)];
        layout_.batches[static_cast<std::size_t>(group)].push_back(
            {static_cast<std::uint32_t>(type), begin, begin + rows});
        first[static_cast<std::size_t>(type)] += rows;
      }
    }
  }
  each_run([&](const InputGraph&, const InputGraph::Run& run, std::size_t g, std::uint32_t t) {
    Index& row = next[cell(group_of_[g], run.level, t)];
    std::int32_t* const row_of = row_of_.data() + layout_.first_vertex[g];
    for (std::int32_t place = run.begin; place < run.end; ++place) row_of[place] = static_cast<std::int32_t>(row++);
  });
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

/// Edges lie in the order of their consumers' rows.
void Layout::Maker::place_edges() {
  for (std::size_t t = 0; t < layout_.types.size(); ++t) {
    if (plan_.types[t].children != Rate::edges) continue;
    layout_.types[t].edge_begin.assign(static_cast<std::size_t>(layout_.types[t].rows) + 1, 0);
  }
  each_run([&](const InputGraph& graph, const InputGraph::Run& run, std::size_t g, std::uint32_t t) {
    if (plan_.types[t].children != Rate::edges) return;
    std::int32_t* const edges = layout_.types[t].edge_begin.data() + 1;  // how many, at first
    const std::int32_t* const row_of = row_of_.data() + layout_.first_vertex[g];
    const std::int32_t* const begin = graph.child_begin_.data();
    for (std::int32_t place = run.begin; place < run.end; ++place)
      edges[row_of[place]] = begin[place + 1] - begin[place];
  });
  for (TypeRows& type : layout_.types) {
    for (std::size_t r = 1; r < type.edge_begin.size(); ++r) {
      type.edges += type.edge_begin[r];
      if (type.edges > INT32_MAX)
        throw MisuseError("a minibatch of more than 2147483647 edges; expected at most so many");
      type.edge_begin[r] = static_cast<std::int32_t>(type.edges);
    }
  }
}

void Layout::Maker::size_columns() {
  const ir::Function& function = *plan_.program.function;
  for (std::size_t t = 0; t < layout_.types.size(); ++t) {
    TypeRows& type = layout_.types[t];
    type.slot.assign(static_cast<std::size_t>(type.rows), {});
    type.vertex.resize(static_cast<std::size_t>(type.rows));
    const auto size = [&](auto& columns, const auto& fields, const std::vector<char>& read) {
      for (std::size_t i = 0; i < fields.size(); ++i) {
        const Index width = read[i] != 0 ? fields[i].width : 0;
        auto& column = columns.emplace_back();
        column.width = width;
        column.edges = fields[i].rows == Rows::edges();
        column.elements.resize(static_cast<std::size_t>((column.edges ? type.edges : type.rows) * width));
      }
    };
    size(type.indices, function.index_pulls, plan_.types[t].pulls_indices);
    size(type.values, function.pulls, plan_.types[t].pulls_values);
  }
}

void Layout::Maker::fill_columns() {
  const ir::Function& function = *plan_.program.function;
  for (TypeRows& type : layout_.types) {
    for (std::size_t i = 0; i < type.indices.size(); ++i) {
      if (type.indices[i].width > 0) fill(function.index_pulls[i], type, type.indices[i].elements);
    }
    for (std::size_t i = 0; i < type.values.size(); ++i) {
      const bool shares = function.pulls[i].holds == ir::Field::Holds::share_of_child;
      if (type.values[i].width > 0 && shares) fill_shares(type, type.values[i].elements);
    }
  }
}

void Layout::Maker::fill(const ir::IndexField& field, const TypeRows& type, std::vector<std::int32_t>& to) const {
  using Holds = ir::IndexField::Holds;
  const auto& begin = type.edge_begin;
  if (field.holds == Holds::vertex) to = type.vertex;
  if (field.holds == Holds::row) {
    const std::vector<std::int32_t>& row_of = *options_.row_of[field.tensor];
    for (std::size_t r = 0; r < to.size(); ++r) {
      const std::int32_t vertex = type.vertex[r];
      to[r] = row_of.empty() ? vertex : row_of[static_cast<std::size_t>(vertex)];
    }
  }
  for (std::size_t r = 0; r + 1 < begin.size(); ++r) {
    if (field.holds == Holds::edges) {
      to[2 * r] = begin[r];
      to[2 * r + 1] = begin[r + 1];
    } else if (field.holds == Holds::consumer) {
      std::fill(to.begin() + begin[r], to.begin() + begin[r + 1], static_cast<std::int32_t>(r));
    }
  }
}

void Layout::Maker::fill_shares(const TypeRows& type, std::vector<float>& to) {
  for (std::size_t r = 0; r < to.size(); ++r) {
    const std::int32_t children = type.edge_begin[r + 1] - type.edge_begin[r];
    to[r] = children > 0 ? 1.0f / static_cast<float>(children) : 0;
  }
}

void Layout::Maker::place_inputs() {
  each_run([&](const InputGraph& graph, const InputGraph::Run& run, std::size_t g, std::uint32_t t) {
    TypeRows& type = layout_.types[t];
    const std::int32_t first = layout_.first_vertex[g];
    const std::int32_t* const row_of = row_of_.data() + first;
    for (std::int32_t place = run.begin; place < run.end; ++place) {
      type.vertex[static_cast<std::size_t>(row_of[place])] = first + graph.vertex_[static_cast<std::size_t>(place)];
    }
    place_run(graph, run, row_of, type);
    if (type.edges > 0) place_edges_of_run(graph, run, row_of, type);
  });
}

void Layout::Maker::place_run(const InputGraph& graph, const InputGraph::Run& run, const std::int32_t* row_of,
                              TypeRows& type) const {
  const auto place = [&](auto& columns, const auto& of_graph) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (columns[i].width == 0 || columns[i].edges || of_graph[i].empty()) continue;
      if (options_.schedule == SchedulePolicy::level) {  // neighbours stay neighbours
        columns[i].copy(row_of[run.begin], of_graph[i], run.begin, run.end);
        continue;
      }
      for (std::int32_t p = run.begin; p < run.end; ++p) columns[i].copy(row_of[p], of_graph[i], p, p + 1);
    }
  };
  place(type.indices, graph.indices_);
  place(type.values, graph.values_);
}

void Layout::Maker::place_edges_of_run(const InputGraph& graph, const InputGraph::Run& run, const std::int32_t* row_of,
                                       TypeRows& type) const {
  const auto place = [&](auto& columns, const auto& of_graph) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (columns[i].width == 0 || !columns[i].edges || of_graph[i].empty()) continue;
      for (std::int32_t p = run.begin; p < run.end; ++p) {
        const auto at = static_cast<std::size_t>(p);
        columns[i].copy(type.edge_begin[static_cast<std::size_t>(row_of[p])], of_graph[i], graph.child_begin_[at],
                        graph.child_begin_[at + 1]);
      }
    }
  };
  place(type.indices, graph.indices_);
  place(type.values, graph.values_);
}

void Layout::Maker::connect() {
  for (std::size_t g = 0; g < graphs_.size(); ++g) {
    for (const InputGraph::Run& run : graphs_[g]->runs_) connect_run(*graphs_[g], run, g);
  }
  for (TypeRows& type : layout_.types) std::sort(type.further.begin(), type.further.end());
}

/// The edges to its vertices get their slots.
void Layout::Maker::connect_run(const InputGraph& graph, const InputGraph::Run& run, std::size_t number) {
  const std::uint32_t t = type_number_[number][run.type];
  const std::int32_t* const row_of = row_of_.data() + layout_.first_vertex[number];
  const bool by_edges = plan_.types[t].children == Rate::edges;
  const std::uint32_t children = ir::children(*graph.function_, graph.types_[run.type]);
  if (children == 0) return;
  for (std::int32_t place = run.begin; place < run.end; ++place) {
    const std::int32_t row = row_of[place];
    Slot slot{by_edges ? layout_.types[t].edge_begin[static_cast<std::size_t>(row)] : row,
              static_cast<std::uint16_t>(t)};
    std::uint32_t left = children;
    const auto begin = static_cast<std::size_t>(graph.child_begin_[static_cast<std::size_t>(place)]);
    const auto end = static_cast<std::size_t>(graph.child_begin_[static_cast<std::size_t>(place) + 1]);
    for (std::size_t e = begin; e < end; ++e) {
      const auto child = static_cast<std::size_t>(graph.children_[e]);
      if (!by_edges) slot.child = static_cast<std::uint16_t>(std::countr_zero(left));
      TypeRows& producer = layout_.types[type_number_[number][graph.type_[child]]];
      Slot& first = producer.slot[static_cast<std::size_t>(row_of[child])];
      if (first.row < 0) {
        first = slot;
      } else {
        producer.further.push_back({row_of[child], slot});
      }
      left &= left - 1;
      if (by_edges) ++slot.row;
    }
  }
}

}  // namespace windrow
