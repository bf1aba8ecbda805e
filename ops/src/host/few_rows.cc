// Products of few rows with a matrix, transposed or not, by Highway. Both matrices are read in the order in which they
// lie. `windrow-perf train --model tree-lstm --batch 1` is sensitive to these kernels. oneDNN compiles its kernels when
// the first product needs them; with the kernels here, the first prediction does not wait for that.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/few_rows.cc"
#include "hwy/foreach_target.h"
// foreach_target.h comes first.
#include <algorithm>
#include <array>
#include <utility>

#include "host/product.h"
#include "host/simd.h"

HWY_BEFORE_NAMESPACE();
namespace windrow {
namespace HWY_NAMESPACE {

/// Sums that stay in registers, the most vectors of columns of a tile, and those of a block: a multiple of all tiles'.
constexpr std::size_t plain_sums = hn::MaxLanes(d) >= 16 ? 24 : 12, plain_vectors = 4, block_vectors = 12;

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

/// out = x y, where y is not transposed: `Rows` rows of the result, vectors of columns at a time. The products of an
/// element are summed in the order of its row of x, whatever the tile.
template <std::size_t Rows, std::size_t Vectors, class Load, class Store>
HWY_INLINE void multiply_vectors(const Product& p, Index row, Index column, Load load, Store store) {
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  std::array<const float*, Rows> x;
  for (std::size_t r = 0; r < Rows; ++r) x[r] = p.x.matrix.row(row + static_cast<Index>(r));
  V sums[Rows][Vectors];
#pragma GCC unroll 32
  for (std::size_t i = 0; i < Rows * Vectors; ++i) sums[i / Vectors][i % Vectors] = hn::Zero(d);
  const float* y = p.y.matrix.data + column;
  for (Index k = 0; k < p.x.matrix.width; ++k, y += p.y.matrix.stride) {
    V of_y[Vectors];
#pragma GCC unroll 16
    for (std::size_t v = 0; v < Vectors; ++v) of_y[v] = load(y + static_cast<Index>(v) * lanes);
#pragma GCC unroll 16
    for (std::size_t r = 0; r < Rows; ++r) {
      const V of_x = hn::Set(d, x[r][k]);
#pragma GCC unroll 16
      for (std::size_t v = 0; v < Vectors; ++v) sums[r][v] = hn::MulAdd(of_x, of_y[v], sums[r][v]);
    }
  }
  const bool adds = p.write == Write::add;
#pragma GCC unroll 16
  for (std::size_t r = 0; r < Rows; ++r) {
    float* const out = p.out.row(row + static_cast<Index>(r)) + column;
#pragma GCC unroll 16
    for (std::size_t v = 0; v < Vectors; ++v) {
      float* const to = out + static_cast<Index>(v) * lanes;
      store(adds ? hn::Add(sums[r][v], load(to)) : sums[r][v], to);
    }
  }
}

/// Columns [column, end), at most as many as a block has.
template <std::size_t Rows>
HWY_NOINLINE void multiply_plain_rows(const Product& p, Index row, Index column, Index end) {
  constexpr std::size_t vectors = plain_sums / Rows < plain_vectors ? plain_sums / Rows : plain_vectors;
  const auto lanes = static_cast<Index>(hn::Lanes(d));
  const auto load = [](const float* from) HWY_ATTR { return hn::LoadU(d, from); };
  const auto store = [](V from, float* to) HWY_ATTR { hn::StoreU(from, d, to); };
  const Index wide = static_cast<Index>(vectors) * lanes;
  for (; column + wide <= end; column += wide) multiply_vectors<Rows, vectors>(p, row, column, load, store);
  for (; column + lanes <= end; column += lanes) multiply_vectors<Rows, 1>(p, row, column, load, store);
  if (column == end) return;
  Tail tail(end - column);
  multiply_vectors<Rows, 1>(
      p, row, column, [&](const float* from) HWY_ATTR { return tail.load(from); },
      [&](V from, float* to) HWY_ATTR { tail.store(from, to); });
}

/// Multiplies by blocks of columns, which stay in the cache for the next rows of x.
void multiply_plain_block(const Product& p) {
  constexpr std::array by_rows = {multiply_plain_rows<1>, multiply_plain_rows<2>, multiply_plain_rows<3>,
                                  multiply_plain_rows<4>, multiply_plain_rows<5>, multiply_plain_rows<6>,
                                  multiply_plain_rows<7>, multiply_plain_rows<8>};
  constexpr auto most = static_cast<Index>(plain_sums >= 24 ? by_rows.size() : 6);
  const Index block = static_cast<Index>(block_vectors * hn::Lanes(d));
  const Index rows = p.out.rows, groups = (rows + most - 1) / most;
  for (Index column = 0; column < p.out.width; column += block) {
    for (Index g = 0; g < groups; ++g) {
      const Index row = rows * g / groups, end = rows * (g + 1) / groups;
      by_rows[static_cast<std::size_t>(end - row - 1)](p, row, column, std::min(column + block, p.out.width));
    }
  }
}

/// Long rows of x are summed in parts of equal length, as oneDNN's kernels for AVX-512 do for up to 768 elements. So
/// with these, a product has the same bits with few rows and with many.
void multiply_plain(const Product& p) {
  constexpr Index longest = 384;
  const Index inner = p.x.matrix.width, parts = std::max<Index>(1, (inner + longest - 1) / longest);
  const Index length = (inner + parts - 1) / parts;
  Product part = p;
  for (Index k = 0; k == 0 || k < inner; k += length, part.write = Write::add) {
    part.x.matrix.data = p.x.matrix.data + k;
    part.x.matrix.width = std::min(length, inner - k);
    part.y.matrix.data = p.y.matrix.data + k * p.y.matrix.stride;
    part.y.matrix.rows = part.x.matrix.width;
    multiply_plain_block(part);
    if (length == 0) break;
  }
}

void multiply_few_rows(const Product& p) {
  if (p.y.as == Factor::As::it_is) return multiply_plain(p);
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
