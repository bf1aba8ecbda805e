// Input graphs: which vertex consumes which, and what each vertex is given.
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

/// No child at this place.
inline constexpr std::int32_t no_child = -1;

/// A graph as its reader delivers it. Vertices are numbered from 0, in any order.
struct GraphData {
  /// Children in CSR: those of vertex v are children[child_begin[v]] ... children[child_begin[v + 1] - 1], the first
  /// being child 0. One more than there are vertices; {0} for none.
  std::vector<std::int32_t> child_begin = {0};
  std::vector<std::int32_t> children = {};  ///< vertices, or no_child
  /// Of each vertex, which of the functions computes it that the graph's is put together of; empty where all are 0.
  std::vector<std::int32_t> kinds = {};
  /// Of each name that the vertex function pulls: the rows of all vertices, one behind the other. Those of vertices
  /// whose kind does not pull it are not looked at.
  std::map<std::string, std::vector<std::int32_t>> indices = {};
  std::map<std::string, std::vector<float>> values = {};
  /// The same for edges, with a row for each of `children`.
  std::map<std::string, std::vector<std::int32_t>> edge_indices = {};
  std::map<std::string, std::vector<float>> edge_values = {};
};

/// A checked graph with its levels: a vertex is one level above its highest child, a vertex without children on level
/// 0. Immutable; for the vertex function it was made for.
class InputGraph {
 public:
  /// Throws MisuseError naming the vertex: for offsets that do not fit, an unknown child, a cycle, more children than
  /// the function's arity, an unknown kind, or a child of a kind that does not scatter what is gathered; and for a
  /// missing input or one of the wrong length. `name` is said in errors, also of minibatches.
  InputGraph(const VertexFunction& function, const GraphData& data, std::string name = {});

  std::int32_t vertices() const { return static_cast<std::int32_t>(level_.size()); }
  std::int32_t levels() const { return levels_; }
  /// `vertex` is less than vertices().
  std::int32_t level(std::int32_t vertex) const { return level_[static_cast<std::size_t>(vertex)]; }
  std::int64_t edges() const { return edges_; }

 private:
  friend struct Layout;
  friend class Runner;
  friend std::vector<TypedGraph> typed_graphs(std::span<const InputGraph* const> graphs, std::size_t minibatch);
  /// Neighbours in the order of types and levels: all of one type and level.
  struct Run {
    std::int32_t type;  // place among the graph's types
    std::int32_t level;
    std::int32_t begin, end;  // places
  };
  class Loading;

  /// Vertices by place, of types that have these numbers.
  void append_to(TypedGraph& graph, const std::uint32_t* type_numbers) const;
  std::string name() const { return name_ ? *name_ : "graph"; }

  std::uint64_t type(std::int32_t number) const {  // see ir.h
    const std::int32_t* halves = block_.data() + columns_ + 2 * number;
    return static_cast<std::uint64_t>(halves[1]) << 32 | static_cast<std::uint32_t>(halves[0]);
  }
  Run run(std::int32_t number) const {
    const std::int32_t* of = block_.data() + columns_ + 2 * types_ + 4 * number;
    return {of[0], of[1], of[2], of[3]};
  }
  const std::int32_t* child_begin() const { return block_.data() + columns_ + 2 * types_ + 4 * runs_; }  // by place
  const std::int32_t* children() const { return child_begin() + vertices() + 1; }                        // places
  const std::int32_t* vertex() const { return children() + edges_; }                                     // by place
  /// Index inputs by the number of their pull, then the others' bits; of places, or of children(). Null for none.
  const std::int32_t* column(std::size_t number) const {
    const std::int32_t begin = block_[number];
    return begin < 0 ? nullptr : block_.data() + begin;
  }

  std::shared_ptr<const std::string> name_;  // null for none
  std::shared_ptr<const ir::Function> function_;
  std::int32_t levels_ = 0;
  std::vector<std::int32_t> level_;  // of each vertex
  // What layouts read lies in one block, so that a graph that was not looked at for long is fetched at once: where
  // columns begin; the distinct types, ascending; runs; children in CSR; vertices; columns. All by place: vertices
  // sorted by type, then level, then number.
  std::int32_t columns_ = 0, types_ = 0, runs_ = 0, edges_ = 0;
  std::vector<std::int32_t> block_;
};

/// Graphs of one function in minibatches of so many, one or more, as schedules see them: of the types that a runner
/// tells apart once it has seen all of them.
std::vector<TypedGraph> typed_graphs(std::span<const InputGraph* const> graphs, std::size_t minibatch);

}  // namespace windrow
