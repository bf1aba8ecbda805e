// Checked access to index operands and targets, for host and reference kernels. `row` is the row of the operand.
#pragma once

#include <utility>

#include "windrow/ops/internal/matrix.h"
#include "windrow/ops/operator.h"

namespace windrow {

using Indices = Matrix<const std::int32_t>;

/// Throws MisuseError: "index 7 at row 3; expected 0 to 4".
[[noreturn]] void throw_bad_index(Index index, Index row, const IndexRange& range);
/// Throws MisuseError: "target 2 at row 3, column 1; expected 0 to 1".
[[noreturn]] void throw_bad_target(double target, Index row, Index column);
[[noreturn]] void throw_bad_segment(Index begin, Index end, Index row, Index rows);

inline Index checked_row(Indices indices, Index row, Index rows) {
  const Index index = *indices.row(row);
  if (index < 0 || index >= rows) throw_bad_index(index, row, {0, rows - 1});
  return index;
}

/// The same in a column of the indices.
inline Index checked_row(Indices indices, Index row, Index column, Index rows) {
  const Index index = indices.row(row)[column];
  if (index < 0 || index >= rows) throw_bad_index(index, row, {0, rows - 1});
  return index;
}

/// A label, or -1 for none.
inline Index checked_label(Indices indices, Index row, Index width) {
  const Index label = *indices.row(row);
  if (label < -1 || label >= width) throw_bad_index(label, row, {-1, width - 1});
  return label;
}

/// The row of a table in a column of the indices, or -1 for none.
inline Index checked_row_or_none(Indices indices, Index row, Index column, Index rows) {
  const Index index = indices.row(row)[column];
  if (index < -1 || index >= rows) throw_bad_index(index, row, {-1, rows - 1});
  return index;
}

/// A probability; NaN is accepted.
template <class Real>
Real checked_target(Matrix<const Real> targets, Index row, Index column) {
  const Real target = targets.row(row)[column];
  if (target < 0 || target > 1) throw_bad_target(target, row, column);
  return target;
}

/// A row of the bounds operand of op::sgd_rows.
struct Bounds {
  Index row, first, last;
};
struct BoundLimits {
  Index first_row, rows, order;  ///< first row and number of rows of the table; length of the order
};
/// Throws MisuseError also for a segment without rows.
inline Bounds checked_bounds(Indices indices, Index r, BoundLimits limits) {
  const std::int32_t* const bounds = indices.row(r);
  const Bounds result{bounds[0], bounds[1], bounds[2]};
  if (result.row < limits.first_row || result.row >= limits.rows) {
    throw_bad_index(result.row, r, {limits.first_row, limits.rows - 1});
  }
  if (result.first < 0 || result.last <= result.first || result.last > limits.order) {
    throw_bad_segment(result.first, result.last, r, limits.order);
  }
  return result;
}

inline std::pair<Index, Index> checked_segment(Indices indices, Index row, Index rows) {
  const Index begin = indices.row(row)[0], end = indices.row(row)[1];
  if (begin < 0 || end < begin || end > rows) throw_bad_segment(begin, end, row, rows);
  return {begin, end};
}

}  // namespace windrow
