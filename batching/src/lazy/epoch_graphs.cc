// The input that an epoch gives its runner: graphs with their edges, indices and factors, and the lines that recorded
// them.
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
    for (const auto& [node, column] : kind.factors) factors[at(column)][v] = *nodes_.values(first + node);
    for (const Kinds::IndexOperand& index : kind.indices) {
      const std::int32_t* const from = nodes_.indices(first + index.node) + index.at;
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

Lines::Lines(const Nodes& nodes, const std::vector<LazyRun>& runs) {
  begin_.reserve(runs.size() + 1);
  lines_.reserve(runs.size());
  for (const LazyRun& run : runs) {
    begin_.push_back(lines_.size());
    const NodeId end = run.call ? run.begin + 1 : run.end;  // results of a call have one line
    for (const Nodes::Node& node : nodes.between(run.begin, end)) lines_.push_back({node.key, node.from});
  }
  begin_.push_back(lines_.size());
  const auto keys = static_cast<std::uint32_t>(nodes.keys.size());
  ops_.reserve(keys);
  for (std::uint32_t key = 0; key < keys; ++key) ops_.push_back(nodes.keys[key].op);
}

/// Names all lines in which the vertex applies the operator. For operators that planning introduced, such as a packed
/// product or a sum, it names all lines of the vertex.
std::string Lines::of(std::int32_t vertex, const Operator* op) const {
  constexpr std::size_t most = 4;
  const auto first = lines_.begin() + static_cast<std::ptrdiff_t>(begin_[at(vertex)]);
  const auto last = lines_.begin() + static_cast<std::ptrdiff_t>(begin_[at(vertex) + 1]);
  const bool known = op != nullptr && std::any_of(first, last, [&](const Line& line) { return ops_[line.key] == op; });
  std::vector<std::string> texts;
  for (auto line = first; line != last; ++line) {
    const std::string text = line_of(line->from);
    if ((known && ops_[line->key] != op) || std::find(texts.begin(), texts.end(), text) != texts.end()) continue;
    texts.push_back(text);
  }
  std::string all = texts.front();
  for (std::size_t i = 1; i < std::min(texts.size(), most); ++i) all += " or " + texts[i];
  return texts.size() > most ? all + " or " + std::to_string(texts.size() - most) + " other lines" : all;
}

std::string Lines::of_row(const std::string& tensor, Index row) const {
  return line_of(rows_.at(tensor)[static_cast<std::size_t>(row)]);
}

}  // namespace windrow::lazy
