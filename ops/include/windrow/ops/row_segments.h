// Rows that belong together: those of a matrix, grouped by the row of a table that each of them belongs to.
//
//   windrow::RowSegments segments = windrow::row_segments(words);  // 7, 2, 7
//   segments.bounds;  // row 2 has order[0, 1), row 7 has order[1, 3): 2, 0, 1, 7, 1, 3
//   segments.order;   // 1, 0, 2
//
// It knows no tensors; op::sgd_rows takes both lists as index operands.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace windrow {

/// A value.
struct RowSegments {
  /// Of each row of the table that some row belongs to, ascending: that row, then where it begins and ends in `order`.
  std::vector<std::int32_t> bounds;
  /// Rows of the matrix by segment; within a segment ascending.
  std::vector<std::int32_t> order;
};

/// `row_of` holds the table's row of each row of the matrix, and a negative number for a row that belongs to none.
/// Takes time in proportion to the number of rows, and not to that of the table (radix sort). Throws std::bad_alloc.
RowSegments row_segments(std::span<const std::int32_t> row_of);

}  // namespace windrow
