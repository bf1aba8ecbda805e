// Runs parts of the body of a vertex function as the body of a cell, so that lazy programs compute the same lines.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "windrow/batching/lazy_cell.h"

namespace windrow {

/// Stands for the vertex. Its gathers return operands and lists of the cell; its scatters become results.
class CellVertex {
 public:
  using Columns = std::vector<std::pair<std::string, Index>>;  // names and widths
  /// In the order in which calls of the cell pass them. `gathered` and `each` name states.
  struct Operands {
    Columns gathered = {}, each = {};
    std::vector<std::string> indices = {};
  };

  CellVertex(CellBody& cell, const Operands& operands) : cell_(cell) {
    for (const auto& [name, width] : operands.gathered) gathered_.emplace(name, cell.operand(width));
    for (const auto& [name, width] : operands.each) each_.emplace(name, cell.each(width));
    for (const std::string& name : operands.indices) indices_.emplace(name, cell.index());
  }

  const std::string& state(const std::string& name, Index) { return name; }
  Expr gather(std::size_t, const std::string& state) const { return gathered_.at(state); }
  Expr each(const std::string& state) const { return each_.at(state); }
  IndexExpr pull_index(const std::string& name) const { return indices_.at(name); }
  void scatter(const std::string& state, const Expr& value) { scattered_.emplace(state, value); }

  /// Makes these states, which the body has scattered, results of the cell.
  void results(std::initializer_list<const char*> states) {
    for (const char* state : states) cell_.result(scattered_.at(state));
  }

 private:
  CellBody& cell_;
  std::map<std::string, Expr> gathered_, each_, scattered_;
  std::map<std::string, IndexExpr> indices_;
};

}  // namespace windrow
