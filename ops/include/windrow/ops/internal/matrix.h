// A view of rows of equal width, which kernels read and write.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cassert>
#include <cstdint>
#include <type_traits>

namespace windrow {

/// Numbers and positions of rows and elements.
using Index = std::int64_t;

/// A non-owning view of `rows` rows of `width` elements. Row i begins at data + i * stride.
template <class T>
struct Matrix {
  T* data = nullptr;
  Index rows = 0;
  Index width = 0;
  Index stride = 0;

  constexpr T* row(Index i) const {
    assert(0 <= i && i < rows);
    return data + i * stride;
  }
  /// An element, of a matrix in memory that the caller can access.
  constexpr T& operator()(Index i, Index j) const {
    assert(0 <= j && j < width);
    return row(i)[j];
  }
  /// True if the rows are contiguous.
  constexpr bool dense() const { return stride == width || rows <= 1; }

  operator Matrix<const T>() const requires(!std::is_const_v<T>) { return {data, rows, width, stride}; }
};

/// The stride, in elements, of rows of this width on the host. Rows at a distance of a large power of two bytes would
/// map to the same few cache sets, which slows products by up to half. So rows of a multiple of 64 elements get one
/// more cache line. Without it, `windrow-perf train --model tree-lstm --data DIR` loses about a sixth of its
/// throughput.
constexpr Index row_stride(Index width) {
  constexpr Index line = 16;  // elements
  return width > 0 && width % 64 == 0 ? width + line : width;
}

}  // namespace windrow
