#include "windrow/batching/internal/layout.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <limits>

#include "layout/layout_maker.h"

namespace windrow {

namespace {

/// A minibatch has more than two groups only if a group has at least this many vertices per level on average, since
/// products of few rows are slow.
constexpr Index wide = 48;

/// The facts that determine the number of groups. They are shapes only, never the number of workers, so the same
/// minibatch gives the same bits.
struct Extent {
  Index graphs = 0, vertices = 0, levels = 0;

  Index groups(const Plan& plan, const LayoutOptions& options) const {
    const Index a_level = vertices / std::max<Index>(levels, 1);
    const Index most = std::min({options.groups, graphs, std::max<Index>(2, a_level / wide)});
    Index largest_cost = 0;  // of a vertex; counting vertices by type would fetch all graphs here
    for (const TypePlan& type : plan.types) largest_cost = std::max(largest_cost, type.cost);
    return std::clamp<Index>(vertices * largest_cost / options.group_flops, 1, std::max<Index>(most, 1));
  }
  /// Sets the group of each graph. Returns how many groups there are.
  Index divide(std::span<const InputGraph* const> all, const Plan& plan, const LayoutOptions& options,
               std::vector<Index>& group_of) const {
    const Index count = groups(plan, options);
    Index before = 0;
    group_of.clear();
    for (const InputGraph* graph : all) {
      group_of.push_back(std::min(count - 1, (before + graph->vertices() / 2) * count / std::max<Index>(vertices, 1)));
      before += graph->vertices();
    }
    return count;
  }
};

}  // namespace

TypedGraph Layout::typed(std::span<const InputGraph* const> graphs, const Plan& plan) {
  TypedGraph all = nothing_of(plan);
  std::vector<std::uint32_t> numbers;
  std::vector<std::int32_t> memory;
  for (const InputGraph* graph : graphs) {
    numbers.clear();
    for (std::int32_t t = 0; t < graph->types_; ++t) numbers.push_back(plan.program.number_of(graph->type(t)));
    graph->append_to(all, numbers.data(), memory);
  }
  return all;
}

std::vector<TypedGraph> Layout::typed_groups(std::span<const InputGraph* const> graphs, const Plan& plan,
                                             const LayoutOptions& options) {
  Extent extent{.graphs = static_cast<Index>(graphs.size())};
  for (const InputGraph* graph : graphs) {
    extent.vertices += graph->vertices();
    extent.levels = std::max<Index>(extent.levels, graph->levels());
  }
  std::vector<Index> group_of;
  extent.divide(graphs, plan, options, group_of);
  std::vector<TypedGraph> groups;
  for (std::size_t begin = 0, end = 0; begin < graphs.size(); begin = end) {
    while (end < graphs.size() && group_of[end] == group_of[begin]) ++end;
    groups.push_back(typed(graphs.subspan(begin, end - begin), plan));
  }
  return groups;
}

TypedGraph Layout::nothing_of(const Plan& plan) {
  TypedGraph nothing{.types = static_cast<std::int32_t>(plan.types.size())};
  for (const TypePlan& type : plan.types) nothing.costs.push_back(type.cost);
  return nothing;
}

Layout Layout::make(std::span<const InputGraph* const> graphs, const Plan& plan, const LayoutOptions& options,
                    LayoutMemory& memory) {
  Layout layout = memory.take();
  LayoutMemory::Scratch scratch = memory.take_scratch();
  Maker maker(layout, graphs, plan, options, scratch);
  maker.begin();
  maker.divide();
  maker.schedule();
  maker.place_edges();
  maker.size_columns();
  maker.place();
  if (maker.any_producers()) maker.find_producers();
  maker.fill_columns();
  memory.give_back(std::move(scratch));
  return layout;
}

void Layout::Maker::begin() {
  layout_.groups = layout_.vertices = 0;
  layout_.first_vertex.clear();
  layout_.names.clear();
  layout_.gradient_rows.assign(plan_.program.function->outputs.size(), 0);
  layout_.types.resize(plan_.types.size());
  for (TypeRows& type : layout_.types) {
    type.edges = 0;
    type.edge_begin.clear();
    type.further.clear();
    for (auto& producers : type.producers) producers.clear();
  }
}

void Layout::Maker::divide() {
  layout_.first_vertex.reserve(graphs_.size());
  layout_.names.reserve(graphs_.size());
  for (std::size_t g = 0; g < graphs_.size(); ++g) {
    const InputGraph& graph = *graphs_[g];
    layout_.first_vertex.push_back(static_cast<std::int32_t>(layout_.vertices));
    layout_.names.push_back(graph.name_);
    layout_.vertices += graph.vertices();
    levels_ = std::max<Index>(levels_, graph.levels());
    if (layout_.vertices > INT32_MAX) {
      throw MisuseError("a minibatch of " + std::to_string(layout_.vertices) +
                        " vertices or more; expected at most 2147483647");
    }
  }
  const Extent extent{static_cast<Index>(graphs_.size()), layout_.vertices, levels_};
  layout_.groups = extent.divide(graphs_, plan_, options_, scratch_.group_of);
}

/// Orders edges by the rows of their consumers.
void Layout::Maker::place_edges() {
  if (!any_edges_) return;
  for (std::size_t t = 0; t < layout_.types.size(); ++t) {
    if (plan_.types[t].per_edge == 0) continue;
    layout_.types[t].edge_begin.assign(static_cast<std::size_t>(layout_.types[t].rows) + 1, 0);
  }
  for (std::size_t g = 0; g < graphs_.size(); ++g) {
    const InputGraph::Numbers numbers = numbers_of(g);
    const std::int32_t *const begin = numbers.child_begin(), *const row_of = rows_of(g);
    each_type_run(g, [&](const InputGraph::TypeRun& run, std::uint32_t t) {
      if (plan_.types[t].per_edge == 0) return;
      std::int32_t* const edges =
          layout_.types[t].edge_begin.data() + 1 - layout_.types[t].first;  // numbers of edges, summed up below
      const auto by_number = static_cast<std::int32_t>(std::popcount(by_number_of(g, run)));
      const auto per_edge = static_cast<std::int32_t>(plan_.types[t].per_edge);
      for (std::int32_t place = run.begin; place < run.end; ++place) {
        edges[row_of[place]] = (begin[place + 1] - begin[place] - by_number) / per_edge;
      }
    });
  }
  for (TypeRows& type : layout_.types) {
    for (std::size_t r = 1; r < type.edge_begin.size(); ++r) {
      type.edges += type.edge_begin[r];
      if (type.edges > INT32_MAX) {
        throw MisuseError("a minibatch of more than 2147483647 edges; expected at most so many");
      }
      type.edge_begin[r] = static_cast<std::int32_t>(type.edges);
    }
  }
}

void Layout::Maker::size_columns() {
  const ir::Function& function = *plan_.program.function;
  size_again(layout_.slots, static_cast<std::size_t>(layout_.vertices));
  std::fill(layout_.slots.begin(), layout_.slots.end(), Slot());
  views_.reserve(layout_.types.size());
  for (std::size_t t = 0; t < layout_.types.size(); ++t) {
    TypeRows& type = layout_.types[t];
    size_again(type.vertex, static_cast<std::size_t>(type.rows));
    TypeView& view = views_.emplace_back();
    view = {static_cast<std::int32_t>(type.first), type.vertex.data()};
    std::size_t number = 0;  // in graphs
    const auto size = [&](auto& columns, const auto& fields, const std::vector<char>& read) {
      columns.resize(fields.size());
      for (std::size_t i = 0; i < fields.size(); ++i, ++number) {
        auto& column = columns[i];
        column.width = read[i] != 0 ? fields[i].width : 0;
        column.edges = fields[i].rows == Rows::edges();
        size_again(column.elements, static_cast<std::size_t>((column.edges ? type.edges : type.rows) * column.width));
        if (column.elements.empty()) continue;
        auto* const elements = reinterpret_cast<std::int32_t*>(column.elements.data());
        (column.edges ? view.of_edges : view.of_vertices).push_back({number, column.width, elements});
      }
    };
    size(type.indices, function.index_pulls, plan_.types[t].pulls_indices);
    size(type.values, function.pulls, plan_.types[t].pulls_values);
  }
}

/// Copies inputs to their rows, and assigns slots to edges.
void Layout::Maker::place() {
  for (std::size_t g = 0; g < graphs_.size(); ++g) {
    InputGraph::prefetch_after(graphs_, g);
    const InputGraph::Numbers numbers = numbers_of(g);
    each_type_run(g, [&](const InputGraph::TypeRun& run, std::uint32_t t) {
      place_type_run(g, numbers, run, views_[t]);
      connect_edges(g, numbers, run, t);
    });
  }
  for (TypeRows& type : layout_.types) std::sort(type.further.begin(), type.further.end());
}

namespace {

/// Copies rows of a column. There are often only one or two, for which memcpy is slower.
inline void copy_rows(std::int32_t* to, const std::int32_t* from, Index elements) {
  if (elements > 32) {
    std::memcpy(to, from, static_cast<std::size_t>(elements) * sizeof(std::int32_t));
    return;
  }
  for (; elements > 0; --elements) *to++ = *from++;
}

}  // namespace

void Layout::Maker::place_type_run(std::size_t graph, const InputGraph::Numbers& numbers,
                                   const InputGraph::TypeRun& run, const TypeView& type) {
  const std::int32_t first = layout_.first_vertex[graph], *const row_of = rows_of(graph);
  const std::int32_t* const vertex = numbers.vertex();
  for (std::int32_t place = run.begin; place < run.end; ++place) {
    type.vertex[row_of[place] - type.first] = first + vertex[place];
  }
  for (const Active& column : type.of_vertices) {
    const std::int32_t* from = numbers.column(column.number);
    const Index width = column.width;
    if (from == nullptr) {  // the graph has no vertex that reads it
      for (std::int32_t p = run.begin; p < run.end; ++p) {
        std::fill_n(column.elements + (row_of[p] - type.first) * width, width, 0);
      }
      continue;
    }
    if (by_level_) {  // the vertices of a run have consecutive rows
      copy_rows(column.elements + (row_of[run.begin] - type.first) * width, from + run.begin * width,
                (run.end - run.begin) * width);
      continue;
    }
    for (std::int32_t p = run.begin; p < run.end; ++p) {
      copy_rows(column.elements + (row_of[p] - type.first) * width, from + p * width, width);
    }
  }
}

/// Assigns a slot to an edge of the producer.
void Layout::Maker::connect(std::int32_t producer, Slot slot) {
  Slot& to = layout_.slots[static_cast<std::size_t>(producer)];
  if (to.row < 0) {
    to = slot;
  } else {
    add_further(producer, slot);
  }
}

/// Assigns slots to the edges of the vertices of a run, and copies the inputs of edges to vertices without a number.
void Layout::Maker::connect_edges(std::size_t graph, const InputGraph::Numbers& numbers, const InputGraph::TypeRun& run,
                                  std::uint32_t t) {
  const std::int32_t *const row_of = rows_of(graph), *const begin = numbers.child_begin(), *child = numbers.children();
  const TypePlan& type = plan_.types[t];
  const std::uint32_t by_number = by_number_of(graph, run);
  child += begin[run.begin];
  for (std::int32_t place = run.begin; place < run.end; ++place) {
    const std::int32_t row = row_of[place] - views_[t].first;
    Slot slot{row, static_cast<std::uint16_t>(t)};
    for (std::uint32_t left = by_number; left != 0; left &= left - 1, ++child) {
      slot.child = static_cast<std::uint16_t>(std::countr_zero(left));
      connect(row_of[*child], slot);
    }
    if (type.per_edge == 0) continue;
    const auto* const edges = layout_.types[t].edge_begin.data() + row;
    for (slot.row = edges[0]; slot.row < edges[1]; ++slot.row) {
      slot.child = static_cast<std::uint16_t>(type.by_number);
      for (std::size_t k = 0; k < type.per_edge; ++k, ++slot.child, ++child) connect(row_of[*child], slot);
    }
    for (const Active& column : views_[t].of_edges) {
      place_edge_rows(column, numbers.column(column.number), begin[place] + std::popcount(by_number), type.per_edge,
                      edges[0], edges[1]);
    }
  }
}

/// The inputs of edges: in graphs, the first child of an edge has its row, which begins at `at`.
void Layout::Maker::place_edge_rows(const Active& column, const std::int32_t* from, Index at, std::size_t per_edge,
                                    Index begin, Index end) {
  const Index width = column.width, count = end - begin;
  std::int32_t* to = column.elements + begin * width;
  if (from == nullptr) {
    std::fill_n(to, count * width, 0);
  } else if (per_edge == 1) {
    copy_rows(to, from + at * width, count * width);
  } else {
    for (Index edge = 0; edge < count; ++edge, to += width, at += static_cast<Index>(per_edge)) {
      copy_rows(to, from + at * width, width);
    }
  }
}

/// `row` is counted through all types.
void Layout::Maker::add_further(std::int32_t row, Slot slot) {
  auto type = layout_.types.end();
  do --type;
  while (type->first > row || type->rows == 0);
  type->further.push_back({row - static_cast<std::int32_t>(type->first), slot});
}

}  // namespace windrow
