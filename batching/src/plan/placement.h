// Placement: the part of planning that decides where values lie, given the segment in which each is computed.
#pragma once

#include "windrow/batching/internal/plan.h"

namespace windrow {

/// Finds the values that share the storage of another value, their root.
///
/// A slice is a view of its operand. A value that is used only once, by a sum, is computed in the place of the sum, so
/// concatenations and additions need no copies. Every other value has its own storage and is its own root.
class Roots {
 public:
  explicit Roots(const ir::Program& program);

  struct Part {
    ir::Value root;
    Index column;
  };
  Part of(ir::Value value) const { return parts_[ir::at(value)]; }
  /// Whether it is computed in the place of the sum that uses it.
  bool joins(ir::Value value) const { return joins_[ir::at(value)] != 0; }

 private:
  std::vector<Part> parts_;
  std::vector<char> joins_;
};

}  // namespace windrow
