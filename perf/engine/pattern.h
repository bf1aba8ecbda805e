// Patterns of dependency that task systems are compared on: which cells each op reads, and which it mutates.
#pragma once

#include <array>
#include <string>
#include <vector>

namespace windrow::perf {

/// An op of a pattern. Cells are numbered from 0.
struct Task {
  static constexpr int none = -1;
  std::array<int, 3> reads = {none, none, none};  ///< the first `read_count` count
  int read_count = 0;
  int mutates = none;
  int counts = 0;  ///< the counter that the op adds one to; of those only ops in an order share one
};

/// A value. Its tasks are pushed one after the other, again and again.
struct Pattern {
  std::string name;
  int cells = 0, counters = 0;
  std::vector<Task> tasks;
  bool replayed = false;  ///< the same tasks are declared once, or recorded, where a system can
  int width = 0;          ///< of a stencil; of others 0
  int graph_ops = 0;      ///< of a replayed pattern: ops in one graph; 0 is about 2,048
  bool declared = false;  ///< ops are declared once and pushed again and again, by Windrow alone

  /// "A" chain on one cell, "B" independent ops over 1,024 cells, "C" one writer and 64 readers, "D" a stencil of
  /// that width that reads three neighbours, "E" random ops that read two of 256 cells and mutate one, "FA" and "FD" as
  /// A and D, replayed. Throws MisuseError for another name, and for a width below 2.
  static Pattern named(const std::string& name, int width = 64);
  /// For scripts/gates: "A8", "B8" and "D8" are A, B and D in pieces of 8 ops (or another number), B and D on as many
  /// cells as that needs; "FA8" launches each piece as a graph; "A-declared" and so on push declared ops. Also takes
  /// the names above.
  static Pattern counted(const std::string& name);
  static const std::vector<std::string>& names();
};

}  // namespace windrow::perf
