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

}  // namespace windrow
