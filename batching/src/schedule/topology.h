// The vertices of a graph by level, and their consumers.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace windrow {

/// A value. Children are in CSR format, as in GraphData; no_child is skipped.
struct Topology {
  Topology(const std::vector<std::int32_t>& child_begin, const std::vector<std::int32_t>& children);

  std::vector<std::int32_t> consumer_begin, consumers;  ///< of each vertex in CSR format, once for each edge
  std::vector<std::int32_t> waits_for;                  ///< by vertex: its number of children
  std::vector<std::int32_t> order;                      ///< all vertices, each after its children
  std::vector<std::int32_t> level;
  std::int32_t levels = 0;
  std::optional<std::int32_t> on_cycle = {};  ///< a vertex that is its own descendant; then `order` is incomplete
};

}  // namespace windrow
