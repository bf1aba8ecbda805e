// Products of few rows with a transposed matrix, by Highway. Both matrices are read in the order in which they lie.
// `windrow-perf train --model tree-lstm --batch 1` is sensitive to this kernel.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host_few_rows.cc"
#include "hwy/foreach_target.h"
// foreach_target.h comes first.
#include <algorithm>
#include <array>
#include <utility>

#include "host_product.h"
#include "host_simd.h"

HWY_BEFORE_NAMESPACE();
namespace windrow {
namespace HWY_NAMESPACE {

/// The dot products of a tile, which stay in registers: `Rows` rows of x with `Columns` rows of y. Each is summed in
/// the same order whatever the tile, so a result does not depend on how rows and columns are grouped.
template <std::size_t Rows, std::size_t Columns>
HWY_INLINE void multiply_tile(const Product& p, Index row, Index column) {
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const Index inner = p.x.matrix.width;
  std::array<const float*, Rows> x;
  std::array<const float*, Columns> y;
  for (std::size_t r = 0; r < Rows; ++r) x[r] = p.x.matrix.row(row + static_cast<Index>(r));
  for (std::size_t c = 0; c < Columns; ++c) y[c] = p.y.matrix.row(column + static_cast<Index>(c));
  V sums[Rows][Columns];
#pragma GCC unroll 12
  for (std::size_t i = 0; i < Rows * Columns; ++i) sums[i / Columns][i % Columns] = hn::Zero(d);
  const auto add = [&](auto load) HWY_ATTR {
    V of_x[Rows];
#pragma GCC unroll 12
    for (std::size_t r = 0; r < Rows; ++r) of_x[r] = load(x[r]);
#pragma GCC unroll 12
    for (std::size_t c = 0; c < Columns; ++c) {
      const V of_y = load(y[c]);
#pragma GCC unroll 12
      for (std::size_t r = 0; r < Rows; ++r) sums[r][c] = hn::MulAdd(of_x[r], of_y, sums[r][c]);
    }
  };
  Index i = 0;
  for (; i + lanes <= inner; i += lanes) add([&](const float* from) HWY_ATTR { return hn::LoadU(d, from + i); });
  if (i < inner) {
    Tail tail(inner - i);
    add([&](const float* from) HWY_ATTR { return tail.load(from + i); });
  }
  const bool adds = p.write == Write::add;
#pragma GCC unroll 12
  for (std::size_t r = 0; r < Rows; ++r) {
    float* const out = p.out.row(row + static_cast<Index>(r)) + column;
#pragma GCC unroll 12
    for (std::size_t c = 0; c < Columns; ++c) out[c] = sum_of(sums[r][c]) + (adds ? out[c] : 0);
  }
}

template <std::size_t Rows>
HWY_NOINLINE void multiply_rows(const Product& p, Index row, Index column, Index end) {
  constexpr std::size_t columns = 12 / Rows;  // 12 sums and their operands fill 16 registers
  for (; column + static_cast<Index>(columns) <= end; column += columns) multiply_tile<Rows, columns>(p, row, column);
  for (; column < end; ++column) multiply_tile<Rows, 1>(p, row, column);
}

void multiply_few_rows(const Product& p) {
  constexpr std::array by_rows = {multiply_rows<1>, multiply_rows<2>, multiply_rows<3>, multiply_rows<4>};
  constexpr auto most = static_cast<Index>(by_rows.size());
  constexpr Index block = 12;  // rows of y that stay in the cache for the next rows of x
  const Index rows = p.out.rows, groups = (rows + most - 1) / most;
  for (Index column = 0; column < p.out.width; column += block) {
    for (Index g = 0; g < groups; ++g) {
      const Index row = rows * g / groups, end = rows * (g + 1) / groups;
      by_rows[static_cast<std::size_t>(end - row - 1)](p, row, column, std::min(column + block, p.out.width));
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace windrow
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace windrow {

HWY_EXPORT(multiply_few_rows);
void multiply_few_rows(const Product& p) { HWY_DYNAMIC_DISPATCH(multiply_few_rows)(p); }

}  // namespace windrow
#endif  // HWY_ONCE
