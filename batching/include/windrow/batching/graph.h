// Input graphs: the children of each vertex, and the inputs that each vertex pulls.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "windrow/batching/schedule.h"
#include "windrow/batching/vertex_function.h"
#include "windrow/ops/internal/matrix.h"

namespace windrow {

/// Marks a missing child.
inline constexpr std::int32_t no_child = -1;

/// A graph as a data reader delivers it. Vertices are numbered from 0, in any order.
struct GraphData {
  /// Children in compressed sparse row format: those of vertex v are children[child_begin[v]] ...
  /// children[child_begin[v + 1] - 1]; the first is child 0. One element more than there are vertices; {0} for an empty
  /// graph, which may lack the inputs, too.
  std::vector<std::int32_t> child_begin = {0};
  /// Vertices, or no_child. In a function of any arity, the fixed children are followed by the edges; an edge without
  /// children does not exist.
  std::vector<std::int32_t> children = {};
  /// For each vertex, the index of the function that computes it, if the vertex function consists of several; empty if
  /// all are 0. If they are empty although the function has several kinds, errors say so.
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
/// highest child. Immutable except for store_together(). Can be used only with the vertex function for which it was
/// made.
class InputGraph {
 public:
  enum class Checks { all, none };
  /// With Checks::none, the data must be valid: for programs that have checked their data themselves. Errors, also
  /// those of minibatches, mention `name`. Throws MisuseError for
  /// - invalid offsets;
  /// - an unknown child or kind, a cycle, more children than the function's arity, an edge that lacks some of its
  ///   children, naming the vertex;
  /// - a child whose kind does not scatter a state that is gathered from it, naming the vertex;
  /// - an input that is missing or has the wrong length, or an index that an operator does not accept;
  /// - a function with a state that is never scattered.
  InputGraph(const VertexFunction& function, const GraphData& data, std::string name = {}, Checks checks = Checks::all);

  std::int32_t vertices() const { return vertices_; }
  std::int32_t levels() const { return levels_; }
  /// Searches for the vertex, which must be less than vertices().
  std::int32_t level(std::int32_t vertex) const;
  /// The total number of children of all vertices.
  std::int64_t edges() const { return edges_; }
  /// The rows of all vertices in GraphData::indices. Throws MisuseError if the vertex function pulls no index of this
  /// name for vertices, or if the data had none.
  std::vector<std::int32_t> index(std::string_view name) const;
  /// The children and kinds of all vertices, without inputs. Lists missing children only before existing ones.
  GraphData structure() const;
  /// The structure and the inputs, as bytes for a fingerprint: equal for graphs of equal data.
  std::string_view bytes() const {
    return {reinterpret_cast<const char*>(block_.get()), sizeof(block_[0]) * block_size_};
  }

  /// Moves the contents of all these graphs to one block of memory, for a corpus that stays: separate pieces would
  /// prevent the system from getting freed memory between them back. The block stays as long as one of the graphs, or a
  /// copy of one; earlier copies keep their own contents. Call it before other threads use the graphs. None may be null
  /// or moved from. Throws std::bad_alloc, and then leaves all graphs as they were.
  static void store_together(std::span<InputGraph* const> graphs);

 private:
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

  /// Fetches graphs that follow number `at` into the cache. To be called in a loop over graphs, which are usually not
  /// in the cache.
  static void prefetch_after(std::span<const InputGraph* const> graphs, std::size_t at);
  /// Appends the vertices in the order of their places; `type_numbers` maps the graph's types to those of `graph`. For
  /// `memory`, see Numbers.
  void append_to(TypedGraph& graph, const std::uint32_t* type_numbers, std::vector<std::int32_t>& memory) const;
  std::string name() const { return name_ ? *name_ : "graph"; }

  std::uint64_t type(std::int32_t number) const {  // see ir.h
    const std::int32_t at = columns_ + 2 * number;
    return static_cast<std::uint64_t>(in_block(at + 1)) << 32 | static_cast<std::uint32_t>(in_block(at));
  }
  TypeRun type_run(std::int32_t number) const {
    const std::int32_t at = columns_ + 2 * types_ + 4 * number;
    return {in_block(at), in_block(at + 1), in_block(at + 2), in_block(at + 3)};
  }
  std::int32_t in_block(std::int32_t at) const {
    if (!narrow_) return block_[at];
    const auto word = static_cast<std::uint32_t>(block_[at / 2]);
    return widened(at % 2 == 0 ? word : word >> 16);
  }
  /// Unpacks the number in the lower half of a word.
  static std::int32_t widened(std::uint32_t word) {
    return static_cast<std::int32_t>(static_cast<std::uint16_t>(word + 1)) - 1;
  }

  /// The structure and the inputs of a graph. Does not own them.
  class Numbers {
   public:
    /// Unpacks a narrow graph into `memory`, which must outlive this object.
    Numbers(const InputGraph& graph, std::vector<std::int32_t>& memory);

    const std::int32_t* child_begin() const { return child_begin_; }                      // by place
    const std::int32_t* children() const { return child_begin_ + graph_.vertices_ + 1; }  // places
    const std::int32_t* vertex() const { return children() + graph_.edges_; }             // by place
    /// Index inputs by number, then the bits of float inputs; one row for each place, or for each element of
    /// children(). Null if the graph lacks the input.
    const std::int32_t* column(std::size_t number) const {
      return begin_[number] < 0 ? nullptr : begin_ + begin_[number];
    }

   private:
    const InputGraph& graph_;
    const std::int32_t *begin_, *child_begin_;
  };

  std::shared_ptr<const std::string> name_;  // null for none
  std::shared_ptr<const ir::Function> function_;
  std::int32_t vertices_ = 0, levels_ = 0;
  // Layouts read all of this from one block, so that a graph that is no longer in the cache is fetched with few misses.
  // It contains: where columns begin; the distinct types, ascending; runs; children in CSR format; vertices; columns.
  // All are in the order of places: vertices sorted by type, then level, then number. In a narrow graph, all numbers
  // are from -1 to 65534, and an element of the block contains two of them, the first one in its lower half. Offsets
  // count unpacked numbers.
  std::int32_t columns_ = 0, types_ = 0, type_runs_ = 0, edges_ = 0;
  bool narrow_ = false;
  std::size_t block_size_ = 0;
  std::shared_ptr<const std::int32_t[]> block_;
};

/// The samples of a minibatch, as a parameter of functions that read them only during the call. Made from a vector,
/// array or span of InputGraph, or of pointers to them. A value that refers to the graphs, and to the caller's
/// pointers.
class InputGraphs {
 public:
  using Pointers = std::span<const InputGraph* const>;

  InputGraphs() = default;
  template <class Graphs>
  requires std::convertible_to<Graphs&&, std::span<const InputGraph>> InputGraphs(Graphs&& graphs) {
    const std::span<const InputGraph> all = graphs;
    own_.reserve(all.size());
    for (const InputGraph& graph : all) own_.push_back(&graph);
  }
  template <class Graphs>
  requires std::convertible_to<Graphs&&, Pointers> InputGraphs(Graphs&& graphs) : callers_(graphs) {}

  Pointers pointers() const { return own_.empty() ? callers_ : Pointers(own_); }

 private:
  std::vector<const InputGraph*> own_;
  Pointers callers_;
};

/// The graphs in random order, in minibatches of `size`; the last one may be smaller. The same numbers from `random`
/// give the same minibatches with every standard library. The minibatches point to the graphs, which must not move.
/// Throws MisuseError for minibatches of 0 graphs.
///
///   for (const auto& minibatch : windrow::shuffled_minibatches(graphs, 32, random)) runner.differentiate(minibatch);
template <std::uniform_random_bit_generator Random>
std::vector<std::vector<const InputGraph*>> shuffled_minibatches(std::span<const InputGraph> graphs, std::size_t size,
                                                                 Random& random);
/// The same in the order of the graphs, for example for validation.
std::vector<std::vector<const InputGraph*>> minibatches(std::span<const InputGraph> graphs, std::size_t size);
// Of graphs that end with the call.
template <class Random>
void shuffled_minibatches(std::vector<InputGraph>&& graphs, std::size_t size, Random& random) = delete;
void minibatches(std::vector<InputGraph>&& graphs, std::size_t size) = delete;

/// Divides graphs of one vertex function into minibatches of `minibatch` graphs (at least 1), as input for schedules.
/// The types are all vertex types that occur in the graphs. Throws MisuseError for minibatches of 0 graphs.
std::vector<TypedGraph> typed_graphs(std::span<const InputGraph* const> graphs, std::size_t minibatch);

/// A hash of the number of vertices, their children and their kinds, but not of inputs. Use it as StaticInputs::key of
/// a Static (windrow/ops/static.h) or a StaticBlock whose body applies operators vertex by vertex, for graphs of
/// different structure. Among a million structures, two have the same key with a probability of about 3e-8. Pass
/// inputs, such as word numbers, as tensors.
std::uint64_t structure_key(const GraphData& graph);

template <std::uniform_random_bit_generator Random>
std::vector<std::vector<const InputGraph*>> shuffled_minibatches(std::span<const InputGraph> graphs, std::size_t size,
                                                                 Random& random) {
  std::vector<std::vector<const InputGraph*>> all = minibatches(graphs, size);
  const auto at = [&](std::size_t i) -> const InputGraph*& { return all[i / size][i % size]; };
  // Not std::shuffle, which differs between libraries.
  for (std::size_t i = graphs.size(); i > 1; --i) std::swap(at(i - 1), at((random() - Random::min()) % i));
  return all;
}

}  // namespace windrow
