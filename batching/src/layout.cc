#include "layout.h"

#include <algorithm>

#include "plan.h"

namespace windrow {

Layout Layout::make(std::span<const Graph* const> graphs, const Plan& plan, Index groups, Index group_vertices) {
  Layout layout;
  layout.types.resize(plan.types.size());
  layout.divide(graphs, groups, group_vertices);
  layout.count(graphs, plan);
  layout.size_columns(plan);
  layout.place(graphs);
  return layout;
}

void Layout::divide(std::span<const Graph* const> graphs, Index most, Index group_vertices) {
  for (const Graph* graph : graphs) {
    vertices += graph->vertices();
    levels = std::max<Index>(levels, graph->levels());
  }
  if (vertices > INT32_MAX) {
    throw MisuseError("a minibatch of " + std::to_string(vertices) + " vertices; expected at most 2147483647");
  }
  // By the shapes alone, never by the number of workers: the same minibatch gives the same bits.
  most = std::min(most, static_cast<Index>(graphs.size()));
  groups = std::clamp<Index>(vertices / group_vertices, 1, std::max<Index>(most, 1));
  Index before = 0;
  for (const Graph* graph : graphs) {
    group_of_.push_back(std::min(groups - 1, (before + graph->vertices() / 2) * groups / std::max<Index>(vertices, 1)));
    before += graph->vertices();
  }
}

void Layout::count(std::span<const Graph* const> graphs, const Plan& plan) {
  for (TypeRows& type : types) type.begin.assign(static_cast<std::size_t>(groups * levels) + 1, 0);
  const auto& all = plan.program.types;
  for (std::size_t g = 0; g < graphs.size(); ++g) {
    auto& number = type_number_.emplace_back();
    for (ir::VertexType type : graphs[g]->types_) {
      number.push_back(static_cast<std::uint32_t>(std::lower_bound(all.begin(), all.end(), type) - all.begin()));
    }
    const Index first = group_of_[g] * levels + 1;
    for (const Graph::Run& run : graphs[g]->runs_) {
      types[number[run.type]].begin[static_cast<std::size_t>(first + run.level)] += run.end - run.begin;
    }
  }
  for (std::size_t t = 0; t < types.size(); ++t) {
    TypeRows& type = types[t];
    for (std::size_t i = 1; i < type.begin.size(); ++i) type.begin[i] += type.begin[i - 1];
    type.rows = type.begin.back();
    next_.push_back(type.begin);
    type.first_slot = edges;
    edges += type.rows * plan.types[t].children;
  }
  if (edges > INT32_MAX) {
    throw MisuseError("a minibatch of " + std::to_string(edges) + " edges; expected at most 2147483647");
  }
}

void Layout::size_columns(const Plan& plan) {
  const ir::Function& function = *plan.program.function;
  for (std::size_t t = 0; t < types.size(); ++t) {
    TypeRows& type = types[t];
    const auto rows = static_cast<std::size_t>(type.rows);
    type.slot.assign(rows, -1);
    type.vertex.resize(rows);
    for (std::size_t i = 0; i < function.index_pulls.size(); ++i) {
      const auto width = plan.types[t].pulls_indices[i] ? function.index_pulls[i].width : 0;
      type.indices.push_back({width, std::vector<std::int32_t>(rows * static_cast<std::size_t>(width))});
    }
    for (std::size_t i = 0; i < function.pulls.size(); ++i) {
      const auto width = plan.types[t].pulls_values[i] ? function.pulls[i].width : 0;
      type.values.push_back({width, std::vector<float>(rows * static_cast<std::size_t>(width))});
    }
  }
}

void Layout::place(std::span<const Graph* const> graphs) {
  std::int32_t first = 0;
  for (std::size_t g = 0; g < graphs.size(); ++g) {
    first_vertex.push_back(first);
    place_graph(*graphs[g], g);
    first += graphs[g]->vertices();
  }
  for (TypeRows& type : types) std::sort(type.further.begin(), type.further.end());
}

void Layout::place_graph(const Graph& graph, std::size_t number) {
  const std::vector<std::uint32_t>& type_number = type_number_[number];
  row_of_.resize(static_cast<std::size_t>(graph.vertices()));
  // A run's children are of lower levels, but may come later in the order of types: all rows first, then all slots.
  for (const Graph::Run& run : graph.runs_) {
    const std::uint32_t t = type_number[run.type];
    TypeRows& type = types[t];
    Index& next = next_[t][static_cast<std::size_t>(group_of_[number] * levels + run.level)];
    for (std::size_t i = 0; i < type.indices.size(); ++i)
      type.indices[i].copy(next, graph.indices_[i], run.begin, run.end);
    for (std::size_t i = 0; i < type.values.size(); ++i)
      type.values[i].copy(next, graph.values_[i], run.begin, run.end);
    for (std::int32_t place = run.begin; place < run.end; ++place, ++next) {
      row_of_[static_cast<std::size_t>(place)] = static_cast<std::int32_t>(next);
      type.vertex[static_cast<std::size_t>(next)] =
          first_vertex[number] + graph.vertex_[static_cast<std::size_t>(place)];
    }
  }
  for (const Graph::Run& run : graph.runs_) {
    const TypeRows& consumer = types[type_number[run.type]];
    const Index children = ir::children(*graph.function_, graph.types_[run.type]);
    auto slot =
        static_cast<std::int32_t>(consumer.first_slot + children * row_of_[static_cast<std::size_t>(run.begin)]);
    const auto last = slot + static_cast<std::int32_t>(children * (run.end - run.begin));
    for (auto child = graph.children_.begin() + run.first_child; slot < last; ++child, ++slot) {
      const auto place = static_cast<std::size_t>(*child);
      TypeRows& producer = types[type_number[graph.type_[place]]];
      std::int32_t& first = producer.slot[static_cast<std::size_t>(row_of_[place])];
      if (first < 0) {
        first = slot;
      } else {
        producer.further.push_back({row_of_[place], slot});
      }
    }
  }
}

}  // namespace windrow
