// A view of rows of equal width: what kernels read and write.
#pragma once

#include <cassert>
#include <cstdint>
#include <type_traits>

namespace windrow {

/// Counts of rows and elements, and places among them.
using Index = std::int64_t;

/// A handle without ownership: `rows` rows of `width` elements each, row-major, whose starts are `stride` elements
/// apart.
template <class T>
struct Matrix {
  T* data = nullptr;
  Index rows = 0;
  Index width = 0;
  Index stride = 0;

  T* row(Index i) const {
    assert(0 <= i && i < rows);
    return data + i * stride;
  }
  /// The rows lie one behind the other.
  bool dense() const { return stride == width || rows <= 1; }

  operator Matrix<const T>() const requires(!std::is_const_v<T>) { return {data, rows, width, stride}; }
};

/// How far apart the rows of that width are placed where nothing else decides it. Rows a large power of two of bytes
/// apart would all fall on the same few places of the caches, which costs products up to half their speed; a line more
/// spreads them. Without it `windrow-perf train --model tree-lstm --data DIR` loses about a sixth.
constexpr Index row_stride(Index width) {
  constexpr Index line = 16;  // elements
  return width > 0 && width % 64 == 0 ? width + line : width;
}

}  // namespace windrow
