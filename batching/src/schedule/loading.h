// Loading a graph: graph.cc checks its data and finds types and levels, graph_packing.cc sorts and packs it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "windrow/batching/graph.h"
#include "windrow/batching/internal/ir.h"

namespace windrow {

/// Checks the data of a graph, and sorts and packs it.
class InputGraph::Loading {
 public:
  Loading(InputGraph& graph, const GraphData& data) : graph_(graph), data_(data), function_(*graph.function_) {}

  void check_children() const;
  void find_kinds();
  void find_types();
  void check_indices() const;
  bool find_levels_in_order();
  void find_levels();
  void sort();
  /// Throws MisuseError for missing inputs.
  void pack();
  /// `narrow` stores two numbers in each element of the block, if the numbers are small enough.
  enum class Store { as_it_is, narrow };
  void store(Store how);

 private:
  static std::string number(std::int64_t value) { return std::to_string(value); }
  /// Throws the error. Adds a hint if no kinds were given, so that all vertices are of kind 0, which then is the likely
  /// cause.
  [[noreturn]] void refuse(const std::string& why) const {
    const bool forgotten = function_.kinds.size() > 1 && data_.kinds.empty();
    const std::string all_of_0 =
        forgotten ? " (kind 0 of " + number(std::ssize(function_.kinds)) + "; GraphData::kinds is empty)" : "";
    throw MisuseError(graph_.name() + ": " + why + all_of_0);
  }
  std::int32_t vertices() const { return static_cast<std::int32_t>(data_.child_begin.size()) - 1; }
  std::size_t kind_number(std::size_t v) const {
    return data_.kinds.empty() ? 0 : static_cast<std::size_t>(data_.kinds[v]);
  }
  const ir::VertexKind& kind_of(std::size_t v) const { return function_.kinds[kind_number(v)]; }
  void number_types(const std::vector<ir::VertexType>& types);
  void check_child(std::int32_t v, std::int32_t e) const;
  void check_edges(std::int32_t v, const ir::VertexKind& kind) const;
  /// Null if the input is missing and not needed.
  template <class T, class Field>
  const std::vector<T>* input(const std::map<std::string, std::vector<T>>& vertices,
                              const std::map<std::string, std::vector<T>>& edges, const Field& field,
                              bool needed) const;
  /// Packs rows of vertices in the order of places, or rows of edges in that of their consumers' places.
  template <class T, class Field>
  void pack_column(std::size_t column, const std::vector<T>* rows, const Field& field);
  void pack_columns();

  InputGraph& graph_;
  const GraphData& data_;
  const ir::Function& function_;
  std::vector<char> has_kind_;  // by kind: whether any vertex has it
  std::vector<ir::VertexType> distinct_;
  std::vector<std::int32_t> level_;   // by vertex
  std::vector<std::int32_t> types_;   // by vertex: index into distinct_
  std::vector<std::int32_t> vertex_;  // by place
  std::vector<TypeRun> type_runs_;
  std::vector<std::int32_t> block_;
};

template <class T, class Field>
const std::vector<T>* InputGraph::Loading::input(const std::map<std::string, std::vector<T>>& of_vertices,
                                                 const std::map<std::string, std::vector<T>>& of_edges,
                                                 const Field& field, bool needed) const {
  const bool edges = field.rows == Rows::edges();
  const std::string what = (edges ? "edge input '" : "input '") + field.name + "'";
  const auto& inputs = edges ? of_edges : of_vertices;
  const auto found = inputs.find(field.name);
  if (found == inputs.end()) {
    if (!needed) return nullptr;
    std::string given;
    for (const auto& [name, elements] : inputs) given += (given.empty() ? "; given are '" : ", '") + name + "'";
    refuse("has no " + what + ", which " + function_.name + " pulls" + given);
  }
  const Index rows = edges ? static_cast<Index>(data_.children.size()) : vertices();
  if (static_cast<Index>(found->second.size()) != rows * field.width) {
    refuse(what + " has " + number(static_cast<Index>(found->second.size())) + " elements; expected " + number(rows) +
           " x " + number(field.width));
  }
  return &found->second;
}

}  // namespace windrow
