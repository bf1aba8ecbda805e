// Layouts: every vertex's row and every edge's slot in a minibatch, fixed before anything runs. Pure data.
//
// The vertices of a type are rows, ordered by group of samples, then by batch of its schedule, so that what runs
// together is neighbours. A state is written into the slots of the edges to its consumers, in the order of their rows:
// so a consumer finds its children's states side by side, or one below the other if it may have any number of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "plan/plan.h"
#include "windrow/batching/graph.h"
#include "windrow/batching/schedule.h"

namespace windrow {

/// The consumer's end of an edge, where the states of the child are stored; see ChildSlots.
struct Slot {
  std::int32_t row = -1;  ///< of the consumer; of the edge if it may have any number of them; -1 for none
  std::uint16_t type = 0, child = 0;
  friend auto operator<=>(const Slot&, const Slot&) = default;
};

/// The producer's end of an edge: the vertex that computes the state.
struct Producer {
  std::int32_t row = -1;  ///< of its type; -1 where there is no such child
  std::uint16_t type = 0;
};

struct TypeRows {
  Index first = 0;  ///< of its rows, among those of all types
  Index rows = 0, edges = 0;
  /// The first row of each group; the number of rows at the end.
  std::vector<Index> begin;
  /// Of vertices with any number of children, the first edge of each row; the number of edges at the end.
  std::vector<std::int32_t> edge_begin;
  /// Further consumers than Layout::slot tells: row and slot, in ascending order.
  struct Further {
    std::int32_t row;
    Slot slot = {};
    friend auto operator<=>(const Further&, const Further&) = default;
  };
  std::vector<Further> further;
  /// Of each row and child, or of each edge. Empty where states have slots.
  std::vector<Producer> producers;
  /// Of each row: its vertex, counted through all graphs.
  std::vector<std::int32_t> vertex;
  /// An input in the order of the rows, or edges; of width 0 where nothing reads it.
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

/// How a minibatch is cut and put in order.
struct LayoutOptions {
  /// Of samples, at most; fewer where one would have less than about so many vertices.
  Index groups = 1, group_vertices = 1;
  SchedulePolicy schedule = SchedulePolicy::level;
  const ScheduleTable* table = nullptr;  ///< for policy learned, by the plan's numbers of types
  /// Of each tensor that the function is given: Given::row_of. May be left out if there are none.
  std::vector<const std::vector<std::int32_t>*> row_of = {};
  /// Of each output: Announced::row_of. Those behind the last are of their vertices.
  std::vector<std::vector<std::int32_t>> gradient_row_of = {};
};

struct Layout {
  /// The rows of one batch of the schedule: neighbouring rows of a type, which a group computes together.
  struct BatchRows {
    std::uint32_t type;
    Index begin, end;
  };

  Index groups = 0, vertices = 0;
  std::vector<TypeRows> types;                            // as in the plan
  std::vector<Slot> slots;                                // of each row of all types: of the edge to its consumer
  std::vector<std::vector<BatchRows>> batches;            // of each group, in order
  std::vector<std::int32_t> first_vertex;                 // of each graph, counted through all of them
  std::vector<std::shared_ptr<const std::string>> names;  // of each graph; null for none

  /// What a schedule sees of the graphs, by the plan's numbers of types.
  static TypedGraph typed(std::span<const InputGraph* const> graphs, const Plan& plan);
  /// The same of no graphs.
  static TypedGraph nothing_of(const Plan& plan);
  static Layout make(std::span<const InputGraph* const> graphs, const Plan& plan, const LayoutOptions& options);

  Slot slot(std::size_t type, Index row) const { return slots[static_cast<std::size_t>(types[type].first + row)]; }
  /// How many rows of that rate a type has.
  Index count(std::size_t type, Rate rate) const {
    return rate == Rate::vertices ? types[type].rows : types[type].edges;
  }
  /// The same of vertices [begin, end) of the type.
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
