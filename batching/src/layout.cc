#include "layout.h"

#include <algorithm>

#include "plan.h"

namespace windrow {

Layout Layout::make(std::span<const Graph* const> graphs, const Plan& plan, Index groups, Index group_vertices) {
  Layout layout;
  layout.types.resize(plan.types.size());
  layout.divide(graphs, groups, group_vertices);
  for (const Graph* graph : graphs) layout.type_numbers_.push_back(types_of(*graph, plan));
  layout.count(graphs, plan);
  layout.place_rows(graphs, plan);
  layout.place_slots(graphs);
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
  groups = std::clamp<Index>(vertices / std::max<Index>(group_vertices, 1), 1, most);
  Index before = 0;
  for (const Graph* graph : graphs) {
    group_of_.push_back(std::min(groups - 1, (before + graph->vertices() / 2) * groups / std::max<Index>(vertices, 1)));
    before += graph->vertices();
  }
}

std::vector<std::uint32_t> Layout::types_of(const Graph& graph, const Plan& plan) {
  const auto& all = plan.program.types;
  std::vector<std::uint32_t> result;
  for (ir::VertexType type : graph.types_) {
    result.push_back(static_cast<std::uint32_t>(std::lower_bound(all.begin(), all.end(), type) - all.begin()));
  }
  return result;
}

void Layout::count(std::span<const Graph* const> graphs, const Plan& plan) {
  for (TypeRows& type : types) type.begin.assign(static_cast<std::size_t>(groups * levels) + 1, 0);
  for (std::size_t g = 0; g < graphs.size(); ++g) {
    const Graph& graph = *graphs[g];
    const auto& type_number = type_numbers_[g];
    const Index first = group_of_[g] * levels + 1;
    for (std::size_t v = 0; v < graph.level_.size(); ++v) {
      ++types[type_number[graph.type_of_[v]]].begin[static_cast<std::size_t>(first + graph.level_[v])];
    }
  }
  for (std::size_t t = 0; t < types.size(); ++t) {
    TypeRows& type = types[t];
    for (std::size_t i = 1; i < type.begin.size(); ++i) type.begin[i] += type.begin[i - 1];
    type.rows = type.begin.back();
    type.first_slot = edges;
    edges += type.rows * plan.types[t].children;
  }
  if (edges > INT32_MAX) {
    throw MisuseError("a minibatch of " + std::to_string(edges) + " edges; expected at most 2147483647");
  }
}

void Layout::place_rows(std::span<const Graph* const> graphs, const Plan& plan) {
  const ir::Function& function = *plan.program.function;
  row_of_.resize(static_cast<std::size_t>(vertices));
  std::vector<std::vector<Index>> next;
  for (std::size_t t = 0; t < types.size(); ++t) {
    TypeRows& type = types[t];
    next.push_back(type.begin);
    const auto rows = static_cast<std::size_t>(type.rows);
    type.slot.assign(rows, -1);
    type.vertex.resize(rows);
    type.indices.resize(function.index_pulls.size());
    type.values.resize(function.pulls.size());
    for (std::size_t i = 0; i < type.indices.size(); ++i) {
      if (plan.types[t].pulls_indices[i]) {
        type.indices[i].resize(rows * static_cast<std::size_t>(function.index_pulls[i].width));
      }
    }
    for (std::size_t i = 0; i < type.values.size(); ++i) {
      if (plan.types[t].pulls_values[i]) {
        type.values[i].resize(rows * static_cast<std::size_t>(function.pulls[i].width));
      }
    }
  }
  const auto copy_row = [](auto& to, std::size_t row, const auto& from, std::size_t v, Index width) {
    const auto w = static_cast<std::size_t>(width);
    if (!to.empty()) std::copy_n(from.begin() + static_cast<Index>(v * w), w, to.begin() + static_cast<Index>(row * w));
  };
  std::int32_t vertex = 0;
  for (std::size_t g = 0; g < graphs.size(); ++g) {
    const Graph& graph = *graphs[g];
    const auto& type_number = type_numbers_[g];
    const Index first = group_of_[g] * levels;
    for (std::size_t v = 0; v < graph.level_.size(); ++v, ++vertex) {
      const std::size_t t = type_number[graph.type_of_[v]];
      TypeRows& type = types[t];
      const Index row = next[t][static_cast<std::size_t>(first + graph.level_[v])]++;
      row_of_[static_cast<std::size_t>(vertex)] = static_cast<std::int32_t>(row);
      type.vertex[static_cast<std::size_t>(row)] = vertex;
      for (std::size_t i = 0; i < type.indices.size(); ++i) {
        copy_row(type.indices[i], static_cast<std::size_t>(row), graph.indices_[i], v, function.index_pulls[i].width);
      }
      for (std::size_t i = 0; i < type.values.size(); ++i) {
        copy_row(type.values[i], static_cast<std::size_t>(row), graph.values_[i], v, function.pulls[i].width);
      }
    }
  }
}

void Layout::place_slots(std::span<const Graph* const> graphs) {
  std::int32_t first_vertex = 0;
  for (std::size_t g = 0; g < graphs.size(); ++g) {
    const Graph& graph = *graphs[g];
    const auto& type_number = type_numbers_[g];
    for (std::size_t v = 0; v < graph.level_.size(); ++v) {
      const auto begin = graph.child_begin_[v], end = graph.child_begin_[v + 1];
      if (begin == end) continue;
      const TypeRows& consumer = types[type_number[graph.type_of_[v]]];
      Index slot = consumer.first_slot + Index{row_of_[static_cast<std::size_t>(first_vertex) + v]} * (end - begin);
      for (auto e = begin; e < end; ++e, ++slot) {
        const auto child = static_cast<std::size_t>(graph.children_[static_cast<std::size_t>(e)]);
        TypeRows& producer = types[type_number[graph.type_of_[child]]];
        const std::int32_t row = row_of_[static_cast<std::size_t>(first_vertex) + child];
        std::int32_t& first = producer.slot[static_cast<std::size_t>(row)];
        if (first < 0) {
          first = static_cast<std::int32_t>(slot);
        } else {
          producer.further.push_back({row, static_cast<std::int32_t>(slot)});
        }
      }
    }
    first_vertex += graph.vertices();
  }
  for (TypeRows& type : types) std::sort(type.further.begin(), type.further.end());
}

}  // namespace windrow
