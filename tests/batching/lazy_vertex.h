// Vertices whose values are lazy expressions, so that bodies of vertex functions are programs of lazy expressions, too.
#pragma once

#include <variant>

#include "tests/batching/oracle.h"
#include "tests/batching/support.h"

namespace windrow::testing {

/// A value of one vertex, or of parameters alone.
using LazyRow = std::variant<LazyExpr, LazyWeight>;
struct LazyRowIndex {
  LazyGraph* graph;
  std::optional<LazyIndex> index;  // none if it is absent
};

/// What was written so far.
struct LazyProgram {
  LazyGraph& graph;
  std::vector<std::map<std::string, LazyRow>> states = {};                           // by vertex of the current graph
  std::size_t before = 0;                                                            // vertices of the graphs before it
  std::map<std::string, std::vector<std::pair<std::size_t, LazyExpr>>> pushed = {};  // with the vertex of all graphs
  std::vector<LazyExpr> losses = {};
};

class LazyVertex {
 public:
  LazyVertex(LazyProgram& program, const GraphData& data, std::size_t vertex)
      : program_(program), data_(data), vertex_(vertex) {}
  std::size_t kind() const { return data_.kinds.empty() ? 0 : static_cast<std::size_t>(data_.kinds[vertex_]); }
  OracleState state(const std::string& name, Index width) { return {name, width}; }
  LazyRow gather(std::size_t k, const OracleState& state) {
    const auto place = static_cast<std::size_t>(data_.child_begin[vertex_]) + k;
    const bool there = place < static_cast<std::size_t>(data_.child_begin[vertex_ + 1]);
    const std::int32_t child = there ? data_.children[place] : no_child;
    if (child == no_child) return program_.graph.zeros(state.width);
    return program_.states[static_cast<std::size_t>(child)].at(state.name);
  }
  void scatter(const OracleState& state, const LazyRow& value) {
    program_.states[vertex_].insert_or_assign(state.name, value);
  }
  LazyRow pull(const std::string& name, Index width) {
    return program_.graph.input(own(data_.values.at(name), static_cast<std::size_t>(width)));
  }
  LazyRowIndex pull_index(const std::string& name, Presence presence = Presence::always, Index width = 1) {
    const auto row = own(data_.indices.at(name), static_cast<std::size_t>(width));
    if (presence == Presence::sometimes && row[0] == -1) return {&program_.graph, {}};
    return {&program_.graph, program_.graph.index(row)};
  }
  LazyRow parameter(const Parameter& parameter) { return LazyWeight(parameter); }
  void push(const std::string& name, const LazyRow& value) {
    program_.pushed[name].emplace_back(program_.before + vertex_, std::get<LazyExpr>(value));
  }
  void loss(const LazyRow& value) { program_.losses.push_back(std::get<LazyExpr>(value)); }

 private:
  template <class T>
  std::span<const T> own(const std::vector<T>& all, std::size_t width) const {
    return std::span(all).subspan(vertex_ * width, width);
  }

  LazyProgram& program_;
  const GraphData& data_;
  const std::size_t vertex_;
};

inline LazyRow apply(const Operator& op, std::initializer_list<LazyRow> in,
                     std::initializer_list<LazyRowIndex> indices = {}, const Attributes& attributes = {}) {
  std::vector<LazyOperand> operands;
  std::vector<LazyWeight> weights;
  for (const LazyRow& row : in) {
    std::visit([&](const auto& value) { operands.push_back(value); }, row);
    if (const auto* weight = std::get_if<LazyWeight>(&row)) weights.push_back(*weight);
  }
  std::vector<LazyIndex> rows;
  for (const LazyRowIndex& row : indices) {
    if (!row.index) return row.graph->zeros(weights.at(0).type().width);
    rows.push_back(*row.index);
  }
  if (weights.size() < in.size() || !rows.empty()) return windrow::apply(op, operands, rows, attributes);
  if (in.size() == 1) return windrow::apply(op, {weights[0]}, {}, attributes);
  return windrow::apply(op, {weights[0], weights[1]}, {}, attributes);
}

}  // namespace windrow::testing
