// Dependency patterns on which task systems are compared: which cells each op reads, and which it mutates.
#pragma once

#include <array>
#include <string>
#include <vector>

namespace windrow::perf {

/// An op of a pattern. Cells are numbered from 0.
struct Task {
  static constexpr int none = -1;
  std::array<int, 3> reads = {none, none, none};  ///< only the first `read_count` are used
  int read_count = 0;
  int mutates = none;
  int counts = 0;  ///< the counter that the op increments; ops share a counter only if they are ordered
};

/// A value. Its tasks are pushed in order, repeatedly.
struct Pattern {
  std::string name;
  int cells = 0, counters = 0;
  std::vector<Task> tasks;
  bool replayed = false;     ///< the tasks are built or captured once and then replayed, if the system can do so
  int width = 0;             ///< of a stencil; 0 for other patterns
  int graph_ops = 0;         ///< ops per graph of a replayed pattern; 0: about 2,048
  bool declared = false;     ///< ops are declared once and pushed repeatedly; Windrow only
  bool captures = false;     ///< ops capture 256 bytes more than others; Windrow only
  bool beside_lane = false;  ///< the engine has an ordered lane, which no op uses; Windrow only
  bool values = false;       ///< for scripts/gates: of system windrow-values
  bool pointers = false;     ///< for scripts/gates: of system windrow-pointers

  /// "A": a chain on one cell. "B": independent ops over 1,024 cells. "C": one writer and 64 readers. "D": a stencil of
  /// the given width that reads three neighbours. "E": random ops that read two of 256 cells and mutate one. "FA" and
  /// "FD": A and D, replayed. Throws MisuseError for another name, and for a width of D below 2.
  static Pattern named(const std::string& name, int width = 64);
  /// Patterns of scripts/gates: "A8", "B8" and "D8" are A, B and D for pieces of 8 ops (or another number): B and D use
  /// as many cells as a piece needs. "FA8" launches each piece as a graph. "A-declared" and so on push declared
  /// ops, "A-captures" and so on ops that capture much; with "A-beside-lane" and so on the engine has an ordered lane.
  /// "A-values" and "A-pointers" and so on are those of systems windrow-values and windrow-pointers.
  /// Also accepts the names above.
  static Pattern counted(const std::string& name);
  static const std::vector<std::string>& names();
};

}  // namespace windrow::perf
