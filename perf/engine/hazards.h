// Tracks which op must come after which, for systems that have no variables.
#pragma once

#include <optional>
#include <vector>

#include "pattern.h"

namespace windrow::perf {

/// For each cell, the last op that mutated it and the ops that have read it since. A Node is a handle of an op. A
/// value.
template <class Node>
class Hazards {
 public:
  explicit Hazards(const Pattern& pattern) : cells_(static_cast<std::size_t>(pattern.cells)) {}

  /// Calls after(node) for each op that must precede `task`; the same op may be passed twice.
  template <class After>
  void precede(const Task& task, After after) {
    for_each_read(task, [&](Cell& cell) {
      if (cell.writer) after(*cell.writer);
    });
    if (task.mutates == Task::none) return;
    Cell& own = cell_at(task.mutates);
    for (Node& reader : own.readers) after(reader);
    if (own.readers.empty() && own.writer) after(*own.writer);
  }

  void enter(const Task& task, const Node& node) {
    for_each_read(task, [&](Cell& cell) { cell.readers.push_back(node); });
    if (task.mutates == Task::none) return;
    Cell& own = cell_at(task.mutates);
    own.readers.clear();
    own.writer = node;
  }

  /// Enters an op as if it had mutated every cell.
  void enter_everywhere(const Node& node) {
    for (Cell& cell : cells_) cell.writer = node;
  }

  void forget() {
    for (Cell& cell : cells_) cell = {};
  }

 private:
  struct Cell {
    std::optional<Node> writer;
    std::vector<Node> readers;
  };

  Cell& cell_at(int number) { return cells_[static_cast<std::size_t>(number)]; }
  template <class Do>
  void for_each_read(const Task& task, Do run) {
    for (int k = 0; k < task.read_count; ++k) run(cell_at(task.reads[static_cast<std::size_t>(k)]));
  }

  std::vector<Cell> cells_;
};

}  // namespace windrow::perf
