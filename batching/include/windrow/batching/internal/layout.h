// Layouts: the row of every vertex and the slot of every edge of a minibatch, fixed before any op runs. Pure data.
//
// Each vertex is a row of its type. Rows are ordered by group of samples, then by batch of the group's schedule, so the
// vertices of a batch are neighbours. A vertex writes its state into the slots of the edges to its consumers. Slots are
// ordered by the rows of the consumers, so the states of a consumer's children lie side by side, and the states of its
// edges below each other.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "windrow/batching/graph.h"
#include "windrow/batching/internal/plan.h"
#include "windrow/batching/schedule.h"

namespace windrow {

/// The consumer's end of an edge, where the states of the child are stored; see ChildSlots.
struct Slot {
  std::int32_t row = -1;  ///< of the consumer, or of the edge for a child that is not gathered by number; -1 for none
  std::uint16_t type = 0, child = 0;
  friend auto operator<=>(const Slot&, const Slot&) = default;
};

/// The producer's end of an edge: the vertex that computes the state.
struct Producer {
  std::int32_t row = -1;  ///< within its type; -1 for a missing child
  std::uint16_t type = 0;
};

struct TypeRows {
  Index first = 0;  ///< its first row, counted through all types
  Index rows = 0, edges = 0;
  /// The first row of each group; the number of rows at the end.
  std::vector<Index> begin;
  /// For vertices with any number of children: the first edge of each row; the number of edges at the end.
  std::vector<std::int32_t> edge_begin;
  /// Consumers beyond the first one, which Layout::slot returns: row and slot, in ascending order.
  struct Further {
    std::int32_t row;
    Slot slot = {};
    friend auto operator<=>(const Further&, const Further&) = default;
  };
  std::vector<Further> further;
  /// By rate: by row and child, and by edge and child. Empty if nothing reads them: with slots, by rows; by edges
  /// unless TypePlan::in_place.
  std::array<std::vector<Producer>, 2> producers;
  /// By row: its vertex, counted through all graphs.
  std::vector<std::int32_t> vertex;
  /// An input in the order of rows or edges; of width 0 if nothing reads it.
  template <class T>
  struct Column {
    Index width = 0;
    bool edges = false;
    std::vector<T> elements;

    const T* row(Index row) const { return elements.data() + row * width; }
  };
  std::vector<Column<std::int32_t>> indices;  // by number of the pull
  std::vector<Column<float>> values;
};

/// How a minibatch is divided into groups and ordered.
struct LayoutOptions {
  /// The most groups. There are fewer if a group would have less work than about `group_flops`. Every vertex is counted
  /// with the cost of the most expensive one.
  Index groups = 1, group_flops = 1;
  SchedulePolicy schedule = SchedulePolicy::level;
  /// A tensor that the function is given: its number of rows, and Given::row_of.
  struct GivenRows {
    Index count;
    const std::vector<std::int32_t>* row_of;
  };
  std::vector<GivenRows> given = {};
  /// By output: Announced::row_of. Outputs beyond its end have one row for each vertex.
  std::vector<std::vector<std::int32_t>> gradient_row_of = {};
  /// What dropout masks depend on besides the vertex.
  struct Dropout {
    std::uint64_t seed = 0, minibatch = 0;
    std::vector<std::int32_t> samples = {};  ///< number of each graph; if empty, its place
    friend bool operator==(const Dropout&, const Dropout&) = default;
  } dropout = {};
};

class LayoutMemory;
struct MinibatchMemory;

struct Layout {
  /// The rows of one batch of the schedule: contiguous rows of a type, which a group computes together.
  struct BatchRows {
    std::uint32_t type;
    Index begin, end;
  };

  Index groups = 0, vertices = 0;
  std::vector<TypeRows> types;                            // as in the plan
  std::vector<Slot> slots;                                // by row of all types: the slot at its first consumer
  std::vector<std::vector<BatchRows>> batches;            // of each group, in order
  std::vector<std::int32_t> first_vertex;                 // of each graph, counted through all of them
  std::vector<std::shared_ptr<const std::string>> names;  // of each graph; null for none
  std::vector<Index> gradient_rows;                       // by output: how many the gradient must have at least
  std::shared_ptr<const MinibatchMemory> memory;          // null until it is made, by a lowered plan or an execution

  /// The graphs as input for a schedule, with the plan's types.
  static TypedGraph typed(std::span<const InputGraph* const> graphs, const Plan& plan);
  /// The same for each group of the layout that make() would make of these graphs.
  static std::vector<TypedGraph> typed_groups(std::span<const InputGraph* const> graphs, const Plan& plan,
                                              const LayoutOptions& options);
  /// The same as typed() for no graphs.
  static TypedGraph nothing_of(const Plan& plan);
  /// Makes a layout in the memory of a spare one. Throws MisuseError if a vertex pulls a row that its tensor lacks.
  static Layout make(std::span<const InputGraph* const> graphs, const Plan& plan, const LayoutOptions& options,
                     LayoutMemory& memory);

  const std::vector<Producer>& producers(std::size_t type, Rate rate) const {
    return types[type].producers[static_cast<std::size_t>(rate)];
  }
  Slot slot(std::size_t type, Index row) const { return slots[static_cast<std::size_t>(types[type].first + row)]; }
  /// The number of rows of that rate of a type.
  Index count(std::size_t type, Rate rate) const {
    return rate == Rate::vertices ? types[type].rows : types[type].edges;
  }
  /// The number of rows of that rate of vertices [begin, end) of the type.
  Index count(std::size_t type, Rate rate, Index begin, Index end) const {
    const auto& edge_begin = types[type].edge_begin;
    if (rate == Rate::vertices) return end - begin;
    return edge_begin[static_cast<std::size_t>(end)] - edge_begin[static_cast<std::size_t>(begin)];
  }
  Index begin(std::size_t type, Index group) const { return types[type].begin[static_cast<std::size_t>(group)]; }

 private:
  class Maker;
};

}  // namespace windrow
