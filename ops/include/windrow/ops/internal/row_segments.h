// Groups the rows of a matrix by the row of a table that each of them belongs to.
//
//   windrow::RowSegments segments = windrow::row_segments(words);  // 7, 2, 7
//   segments.bounds;  // row 2 has order[0, 1), row 7 has order[1, 3): 2, 0, 1, 7, 1, 3
//   segments.order;   // 1, 0, 2
//
// Knows no tensors; op::sgd_rows takes both lists as index operands.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstdint>
#include <span>
#include <vector>

namespace windrow {

/// A value.
struct RowSegments {
  /// Three numbers for each row of the table that has rows of the matrix, ascending: the table's row, and the begin and
  /// end of its segment in `order`.
  std::vector<std::int32_t> bounds;
  /// The rows of the matrix, by segment; ascending within a segment.
  std::vector<std::int32_t> order;
};

/// `row_of` contains, for each row of the matrix, `each` rows of the table that it belongs to; a negative number for
/// none. So a row of the matrix may occur several times in a segment. Takes time proportional to the number of rows,
/// independent of the size of the table (radix sort). Throws std::bad_alloc.
RowSegments row_segments(std::span<const std::int32_t> row_of, std::size_t each = 1);

}  // namespace windrow
