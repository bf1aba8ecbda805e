// What host and reference kernels take from index operands, checked. `row` is the row of the index operand.
#pragma once

#include <utility>

#include "windrow/ops/matrix.h"

namespace windrow {

using Indices = Matrix<const std::int32_t>;

/// Throws MisuseError: "index 7 at row 3; expected 0 to 4".
[[noreturn]] void throw_bad_index(Index index, Index row, Index first, Index last);
[[noreturn]] void throw_bad_segment(Index begin, Index end, Index row, Index rows);

inline Index checked_row(Indices indices, Index row, Index rows) {
  const Index index = *indices.row(row);
  if (index < 0 || index >= rows) throw_bad_index(index, row, 0, rows - 1);
  return index;
}

/// A label, or -1 for none.
inline Index checked_label(Indices indices, Index row, Index width) {
  const Index label = *indices.row(row);
  if (label < -1 || label >= width) throw_bad_index(label, row, -1, width - 1);
  return label;
}

inline std::pair<Index, Index> checked_segment(Indices indices, Index row, Index rows) {
  const Index begin = indices.row(row)[0], end = indices.row(row)[1];
  if (begin < 0 || end < begin || end > rows) throw_bad_segment(begin, end, row, rows);
  return {begin, end};
}

}  // namespace windrow
