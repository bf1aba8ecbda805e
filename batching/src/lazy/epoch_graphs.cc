// The graphs of an epoch: its vertices, their edges, indices and factors.
#include <algorithm>

#include "lazy/epochs.h"

namespace windrow::lazy {

/// The positions at which to divide the vertices into graphs without edges between them, which can run concurrently.
std::vector<std::int32_t> Epochs::cuts() const {
  constexpr std::int32_t least = 128;  // vertices of a graph
  const auto vertices = static_cast<std::int32_t>(kind_of_.size());
  std::vector<std::int32_t> cuts = {vertices};
  std::int32_t lowest = vertices;  // the lowest child of a vertex from v on
  for (std::int32_t v = vertices; v-- > 0;) {
    for (std::int32_t e = child_begin_[at(v)]; e < child_begin_[at(v) + 1]; ++e) {
      lowest = std::min(lowest, children_[at(e)]);
    }
    if (lowest >= v && v >= least && cuts.back() - v >= least) cuts.push_back(v);
  }
  cuts.push_back(0);
  std::reverse(cuts.begin(), cuts.end());
  return cuts;
}

GraphData Epochs::graph(std::int32_t begin, std::int32_t end) const {
  const auto vertices = static_cast<std::size_t>(end - begin);
  GraphData data{.kinds = {kind_of_.begin() + begin, kind_of_.begin() + end}};
  const std::int32_t first_edge = child_begin_[at(begin)], last_edge = child_begin_[at(end)];
  data.child_begin.resize(vertices + 1);
  std::transform(child_begin_.begin() + begin, child_begin_.begin() + end + 1, data.child_begin.begin(),
                 [&](std::int32_t edge) { return edge - first_edge; });
  data.children.resize(at(last_edge - first_edge));
  std::transform(children_.begin() + first_edge, children_.begin() + last_edge, data.children.begin(),
                 [&](std::int32_t child) { return child - begin; });
  struct To {
    std::int32_t* rows;
    Index width;
  };
  std::vector<To> columns;
  for (std::int32_t i = 0; i < kinds_.indices().size(); ++i) {
    const auto& [name, width] = kinds_.indices()[i];
    std::vector<std::int32_t>& rows = data.indices[name];
    rows.resize(vertices * static_cast<std::size_t>(width));
    columns.push_back({rows.data(), width});
  }
  std::vector<float*> factors;
  for (std::int32_t i = 0; i < kinds_.factors().size(); ++i) {
    std::vector<float>& rows = data.values[kinds_.factors()[i].name];
    rows.resize(vertices);
    factors.push_back(rows.data());
  }
  for (std::int32_t v = 0; v < end - begin; ++v) {
    const Kinds::Kind& kind = kinds_[data.kinds[at(v)]];
    const NodeId first = runs_.runs()[at(begin + v)].begin;
    for (const auto& [node, column] : kind.factors) factors[at(column)][v] = *record_.values(first + node);
    for (const Kinds::IndexOperand& index : kind.indices) {
      const std::int32_t* const from = record_.indices(first + index.node) + index.at;
      const To& to = columns[at(index.column)];
      for (Index i = 0; i < to.width; ++i) to.rows[v * to.width + i] = from[i];
    }
  }
  return data;
}

std::vector<InputGraph> Epochs::graphs() const {
  const std::vector<std::int32_t> parts = cuts();
  std::vector<InputGraph> graphs;
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
    graphs.push_back(InputGraph(*function_, graph(parts[i], parts[i + 1]), {}, InputGraph::Checks::none));
  }
  return graphs;
}

}  // namespace windrow::lazy
