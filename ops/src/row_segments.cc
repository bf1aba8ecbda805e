#include "windrow/ops/internal/row_segments.h"

#include <algorithm>
#include <bit>

namespace windrow {
namespace {

/// The row of the table in the upper half, the row of the matrix in the lower half.
using Pair = std::uint64_t;
std::int32_t table_row(Pair pair) { return static_cast<std::int32_t>(pair >> 32); }
std::int32_t matrix_row(Pair pair) { return static_cast<std::int32_t>(pair); }

/// Radix sort by the table's row, which has at most `bits` bits, from the lowest digit to the highest. Each pass is
/// stable.
void sort_by_table_row(std::vector<Pair>& pairs, int bits) {
  constexpr std::size_t few = 1024;  // with fewer pairs, counting wide digits would take most of the time
  const int widest = pairs.size() < few ? 8 : 11;
  const int passes = (bits + widest - 1) / widest;
  std::vector<Pair> other(passes > 0 ? pairs.size() : 0);
  std::vector<std::uint32_t> next;
  for (int pass = 0, shift = 32; pass < passes; ++pass) {
    const int digit = (bits + passes - 1) / passes;
    const Pair mask = (Pair{1} << digit) - 1;
    next.assign(std::size_t{1} << digit, 0);
    for (const Pair pair : pairs) ++next[pair >> shift & mask];
    std::uint32_t begin = 0;
    for (std::uint32_t& count : next) {
      const std::uint32_t rows = count;
      count = begin;
      begin += rows;
    }
    for (const Pair pair : pairs) other[next[pair >> shift & mask]++] = pair;
    pairs.swap(other);
    shift += digit;
  }
}

}  // namespace

RowSegments row_segments(std::span<const std::int32_t> row_of, std::size_t each) {
  std::vector<Pair> pairs;
  pairs.reserve(row_of.size());
  std::uint32_t seen = 0;  // the bits that are set in any row
  for (std::size_t r = 0; r < row_of.size(); ++r) {
    if (row_of[r] < 0) continue;
    const auto row = static_cast<std::uint32_t>(row_of[r]);
    seen |= row;
    pairs.push_back(Pair{row} << 32 | (each == 1 ? r : r / each));
  }
  sort_by_table_row(pairs, static_cast<int>(std::bit_width(seen)));
  RowSegments result;
  result.order.reserve(pairs.size());
  result.bounds.reserve(3 * pairs.size());
  for (std::size_t begin = 0, end = 0; begin < pairs.size(); begin = end) {
    const std::int32_t row = table_row(pairs[begin]);
    for (; end < pairs.size() && table_row(pairs[end]) == row; ++end) result.order.push_back(matrix_row(pairs[end]));
    result.bounds.insert(result.bounds.end(), {row, static_cast<std::int32_t>(begin), static_cast<std::int32_t>(end)});
  }
  return result;
}

}  // namespace windrow
