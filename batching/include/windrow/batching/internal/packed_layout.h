// The indices and inputs of a minibatch in one block of 32-bit words, which is copied to a device in one piece; and the
// position of each in the block. Pure data.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstdint>
#include <map>
#include <vector>

#include "windrow/batching/internal/layout.h"
#include "windrow/batching/internal/plan.h"

namespace windrow {

/// The index operands of op::gather_sum, or of op::gather_dot and op::gather_weighted_sum with pairs in `order`, as
/// positions in a block: for each of `rows` rows, begin and end in `order`.
struct PackedGather {
  std::size_t bounds = 0, order = 0;
  Index rows = 0, length = 0;
};

/// A value. All positions are in words.
struct PackedLayout {
  struct Contents {
    bool columns = true;  ///< indices, values, segments and constants
    bool gathers = true;  ///< children and consumers
  };
  PackedLayout() = default;
  PackedLayout(const Plan& plan, const Layout& layout, const Contents& contents);

  using Words = std::vector<std::int32_t>;
  Words words;
  /// By type and number of the pull: the column in the order of rows or edges; see TypeRows::Column.
  std::vector<std::vector<std::size_t>> indices, values;
  /// Rows of type `type` from which rows of another type take values, by the number of the child.
  struct Source {
    std::size_t type, child;
    PackedGather gather;
  };
  /// By type: the producers of the states that its rows or edges gather. Empty for plans with slots.
  std::vector<std::vector<Source>> children;
  /// By type: the rows or edges of the consumers, which hold the gradients that they send.
  std::vector<std::vector<Source>> consumers;
  /// Pairs of rows, by type: for types whose steps read states in place (TypePlan::in_place), and for their producers.
  struct Pairs {
    std::vector<Source> of_edges = {};     ///< for each edge: the row of the child, the row of the vertex
    std::vector<Source> of_vertices = {};  ///< for each vertex: the rows of children, their edges
    std::vector<Source> of_children = {};  ///< for each vertex: the rows of consumers, the edges to it
  };
  std::vector<Pairs> pairs;
  /// By number in Plan::rows: the index operands of op::sgd_rows.
  struct Segments {
    std::size_t bounds = 0, order = 0;
    Index count = 0, length = 0;
  };
  std::vector<Segments> segments;
  /// For zero and each constant with which a step fills values: a row of it, as wide as the widest value. The key is
  /// its bits.
  std::map<std::uint32_t, std::size_t> constants;

  /// Appends a gather. A row takes its sources in the order of `from`.
  struct RowSource {
    std::int32_t row, source;
  };
  static PackedGather append(Words& words, Index rows, const std::vector<RowSource>& from);

 private:
  void pack_columns(const TypeRows& type, std::size_t number);
  void pack_sources(const Plan& plan, const Layout& layout, std::size_t type);
  void pack_pairs(const Plan& plan, const Layout& layout, std::size_t type);
  void pack_segments(const Plan& plan, const Layout& layout);
  void pack_constants(const Plan& plan);
};

}  // namespace windrow
