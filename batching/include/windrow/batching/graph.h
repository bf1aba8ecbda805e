// Input graphs: the children of each vertex, and the inputs that each vertex pulls.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "windrow/batching/schedule.h"
#include "windrow/batching/vertex_function.h"
#include "windrow/ops/matrix.h"

namespace windrow {

namespace lazy {
class Epochs;
}

/// Marks a missing child.
inline constexpr std::int32_t no_child = -1;

/// A graph as a data reader delivers it. Vertices are numbered from 0, in any order.
struct GraphData {
  /// Children in compressed sparse row format: those of vertex v are children[child_begin[v]] ...
  /// children[child_begin[v + 1] - 1]; the first is child 0. One element more than there are vertices; {0} for an empty
  /// graph.
  std::vector<std::int32_t> child_begin = {0};
  /// Vertices, or no_child. In a function of any arity, the fixed children are followed by the edges; an edge without
  /// children does not exist.
  std::vector<std::int32_t> children = {};
  /// For each vertex, the index of the function that computes it, if the vertex function consists of several; empty if
  /// all are 0.
  std::vector<std::int32_t> kinds = {};
  /// Inputs, by the name by which the vertex function pulls them: the rows of all vertices, contiguous. Rows of
  /// vertices whose kind does not pull the input are ignored.
  std::map<std::string, std::vector<std::int32_t>> indices = {};
  std::map<std::string, std::vector<float>> values = {};
  /// Inputs of edges, with a row for each element of `children`. An edge has the row of its first child.
  std::map<std::string, std::vector<std::int32_t>> edge_indices = {};
  std::map<std::string, std::vector<float>> edge_values = {};
};

/// A validated graph with its levels: a vertex without children is on level 0, any other one is one level above its
/// highest child. Immutable; can be used with the vertex function for which it was made.
class InputGraph {
 public:
  /// Throws MisuseError for invalid offsets; for an unknown child, a cycle, more children than the function's arity, an
  /// edge that lacks some of its children, an unknown kind, or a child whose kind does not scatter a state that is
  /// gathered from it, naming the vertex; for an input that is missing or has the wrong length; for an index that an
  /// operator does not accept; and if the function has a state that is never scattered. Errors, also those of
  /// minibatches, mention `name`.
  InputGraph(const VertexFunction& function, const GraphData& data, std::string name = {});

  std::int32_t vertices() const { return vertices_; }
  std::int32_t levels() const { return levels_; }
  /// Searches for the vertex, which must be less than vertices().
  std::int32_t level(std::int32_t vertex) const;
  /// The number of children of all vertices.
  std::int64_t edges() const { return edges_; }

 private:
  friend class lazy::Epochs;
  friend struct Layout;
  friend class Runner;
  friend std::vector<TypedGraph> typed_graphs(std::span<const InputGraph* const> graphs, std::size_t minibatch);
  /// Consecutive vertices of one type and level, in the order of types and levels.
  struct TypeRun {
    std::int32_t type;  // index into the graph's types
    std::int32_t level;
    std::int32_t begin, end;  // places
  };
  class Loading;
  enum class Checks { all, none };
  /// Without checks, the data must be valid. For a caller that makes graphs from what it has checked itself.
  InputGraph(const VertexFunction& function, const GraphData& data, std::string name, Checks checks);

  /// Fetches graphs that follow number `at` into the cache. To be called in a loop over graphs, which are usually not
  /// in the cache.
  static void prefetch_after(std::span<const InputGraph* const> graphs, std::size_t at);
  /// Appends the vertices in the order of their places; `type_numbers` maps the graph's types to those of `graph`.
  void append_to(TypedGraph& graph, const std::uint32_t* type_numbers) const;
  std::string name() const { return name_ ? *name_ : "graph"; }

  std::uint64_t type(std::int32_t number) const {  // see ir.h
    const std::int32_t* halves = block_.data() + columns_ + 2 * number;
    return static_cast<std::uint64_t>(halves[1]) << 32 | static_cast<std::uint32_t>(halves[0]);
  }
  TypeRun type_run(std::int32_t number) const {
    const std::int32_t* of = block_.data() + columns_ + 2 * types_ + 4 * number;
    return {of[0], of[1], of[2], of[3]};
  }
  const std::int32_t* child_begin() const {
    return block_.data() + columns_ + 2 * types_ + 4 * type_runs_;
  }                                                                                // by place
  const std::int32_t* children() const { return child_begin() + vertices() + 1; }  // places
  const std::int32_t* vertex() const { return children() + edges_; }               // by place
  /// Index inputs by number, then the bits of float inputs; one row for each place, or for each element of children().
  /// Null if the graph lacks the input.
  const std::int32_t* column(std::size_t number) const {
    const std::int32_t begin = block_[number];
    return begin < 0 ? nullptr : block_.data() + begin;
  }

  std::shared_ptr<const std::string> name_;  // null for none
  std::shared_ptr<const ir::Function> function_;
  std::int32_t vertices_ = 0, levels_ = 0;
  // Layouts read all of this from one block, so that a graph that is no longer in the cache is fetched with few misses.
  // It contains: where columns begin; the distinct types, ascending; runs; children in CSR format; vertices; columns.
  // All are in the order of places: vertices sorted by type, then level, then number.
  std::int32_t columns_ = 0, types_ = 0, type_runs_ = 0, edges_ = 0;
  std::vector<std::int32_t> block_;
};

/// Divides graphs of one vertex function into minibatches of `minibatch` graphs (at least 1), as input for schedules.
/// The types are all vertex types that occur in the graphs. Throws MisuseError for minibatches of 0 graphs.
std::vector<TypedGraph> typed_graphs(std::span<const InputGraph* const> graphs, std::size_t minibatch);

}  // namespace windrow
