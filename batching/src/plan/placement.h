// Placement: the part of planning that decides where values lie, given the segment in which each is computed.
#pragma once

#include "plan/plan.h"

namespace windrow {

/// Which values share the storage of another one.
///
/// A slice is a view. A value that is used once, by a sum, is computed in the sum's place, so that joining and adding
/// up cost nothing. All others have storage of their own: their root is themselves.
class Roots {
 public:
  explicit Roots(const ir::Program& program);

  struct Part {
    ir::Value root;
    Index column;
  };
  Part of(ir::Value value) const { return parts_[ir::at(value)]; }
  /// It is computed in the place of the sum that uses it.
  bool joins(ir::Value value) const { return joins_[ir::at(value)] != 0; }

 private:
  std::vector<Part> parts_;
  std::vector<char> joins_;
};

}  // namespace windrow
