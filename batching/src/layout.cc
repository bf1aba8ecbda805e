#include "layout.h"

#include <algorithm>

#include "plan.h"

namespace windrow {

/// What is known while a layout is made.
class Layout::Maker {
 public:
  Maker(Layout& layout, std::span<const InputGraph* const> graphs, const Plan& plan)
      : layout_(layout), graphs_(graphs), plan_(plan) {
    layout_.types.resize(plan.types.size());
  }

  void divide(Index most, Index group_vertices);
  void count();
  void size_columns();
  void place();

 private:
  void place_graph(const InputGraph& graph, std::size_t number);

  Layout& layout_;
  const std::span<const InputGraph* const> graphs_;
  const Plan& plan_;
  std::vector<Index> group_of_;                          // by graph
  std::vector<std::vector<std::uint32_t>> type_number_;  // by graph and type of the graph: the plan's number of it
  std::vector<std::vector<Index>> next_;                 // by type, group and level: the next row
  std::vector<std::int32_t> row_of_;                     // by place in the graph at hand
};

Layout Layout::make(std::span<const InputGraph* const> graphs, const Plan& plan, Index groups, Index group_vertices) {
  Layout layout;
  Maker maker(layout, graphs, plan);
  maker.divide(groups, group_vertices);
  maker.count();
  maker.size_columns();
  maker.place();
  return layout;
}

void Layout::Maker::divide(Index most, Index group_vertices) {
  for (const InputGraph* graph : graphs_) {
    layout_.vertices += graph->vertices();
    layout_.levels = std::max<Index>(layout_.levels, graph->levels());
  }
  if (layout_.vertices > INT32_MAX) {
    throw MisuseError("a minibatch of " + std::to_string(layout_.vertices) + " vertices; expected at most 2147483647");
  }
  // By the shapes alone, never by the number of workers: the same minibatch gives the same bits.
  most = std::min(most, static_cast<Index>(graphs_.size()));
  layout_.groups = std::clamp<Index>(layout_.vertices / group_vertices, 1, std::max<Index>(most, 1));
  Index before = 0;
  for (const InputGraph* graph : graphs_) {
    group_of_.push_back(std::min(
        layout_.groups - 1, (before + graph->vertices() / 2) * layout_.groups / std::max<Index>(layout_.vertices, 1)));
    before += graph->vertices();
  }
}

void Layout::Maker::count() {
  for (TypeRows& type : layout_.types)
    type.begin.assign(static_cast<std::size_t>(layout_.groups * layout_.levels) + 1, 0);
  const auto& all = plan_.program.types;
  for (std::size_t g = 0; g < graphs_.size(); ++g) {
    auto& number = type_number_.emplace_back();
    for (ir::VertexType type : graphs_[g]->types_) {
      number.push_back(static_cast<std::uint32_t>(std::lower_bound(all.begin(), all.end(), type) - all.begin()));
    }
    const Index first = group_of_[g] * layout_.levels + 1;
    for (const InputGraph::Run& run : graphs_[g]->runs_) {
      layout_.types[number[run.type]].begin[static_cast<std::size_t>(first + run.level)] += run.end - run.begin;
    }
  }
  for (std::size_t t = 0; t < layout_.types.size(); ++t) {
    TypeRows& type = layout_.types[t];
    for (std::size_t i = 1; i < type.begin.size(); ++i) type.begin[i] += type.begin[i - 1];
    type.rows = type.begin.back();
    next_.push_back(type.begin);
    const Index children = plan_.types[t].children;
    type.first_slot = {static_cast<std::int32_t>(layout_.edges), static_cast<std::int32_t>(layout_.consumers)};
    layout_.edges += type.rows * children;
    layout_.consumers += children > 0 ? type.rows : 0;
  }
  if (layout_.edges > INT32_MAX) {
    throw MisuseError("a minibatch of " + std::to_string(layout_.edges) + " edges; expected at most 2147483647");
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
  std::int32_t first = 0;
  for (std::size_t g = 0; g < graphs_.size(); ++g) {
    layout_.first_vertex.push_back(first);
    layout_.names.push_back(graphs_[g]->name_);
    place_graph(*graphs_[g], g);
    first += graphs_[g]->vertices();
  }
  for (TypeRows& type : layout_.types) std::sort(type.further.begin(), type.further.end());
}

void Layout::Maker::place_graph(const InputGraph& graph, std::size_t number) {
  const std::vector<std::uint32_t>& type_number = type_number_[number];
  row_of_.resize(static_cast<std::size_t>(graph.vertices()));
  // Children are of lower levels, but may come later in the order of types: all rows first, then all slots.
  for (const InputGraph::Run& run : graph.runs_) {
    const std::uint32_t t = type_number[run.type];
    TypeRows& type = layout_.types[t];
    Index& next = next_[t][static_cast<std::size_t>(group_of_[number] * layout_.levels + run.level)];
    for (std::size_t i = 0; i < type.indices.size(); ++i)
      type.indices[i].copy(next, graph.indices_[i], run.begin, run.end);
    for (std::size_t i = 0; i < type.values.size(); ++i)
      type.values[i].copy(next, graph.values_[i], run.begin, run.end);
    for (std::int32_t place = run.begin; place < run.end; ++place, ++next) {
      row_of_[static_cast<std::size_t>(place)] = static_cast<std::int32_t>(next);
      type.vertex[static_cast<std::size_t>(next)] =
          layout_.first_vertex[number] + graph.vertex_[static_cast<std::size_t>(place)];
    }
  }
  for (const InputGraph::Run& run : graph.runs_) {
    const Index children = ir::children(*graph.function_, graph.types_[run.type]);
    if (children == 0) continue;
    const TypeRows& consumer = layout_.types[type_number[run.type]];
    const std::int32_t first_row = row_of_[static_cast<std::size_t>(run.begin)];
    auto child = graph.children_.begin() + run.first_child;
    Slot slot{consumer.first_slot.edge + static_cast<std::int32_t>(children) * first_row,
              consumer.first_slot.consumer + first_row};
    for (std::int32_t row = run.begin; row < run.end; ++row, ++slot.consumer) {
      for (Index k = 0; k < children; ++k, ++slot.edge, ++child) {
        const auto place = static_cast<std::size_t>(*child);
        TypeRows& producer = layout_.types[type_number[graph.type_[place]]];
        Slot& first = producer.slot[static_cast<std::size_t>(row_of_[place])];
        if (first.edge < 0) {
          first = slot;
        } else {
          producer.further.push_back({row_of_[place], slot});
        }
      }
    }
  }
}

}  // namespace windrow
