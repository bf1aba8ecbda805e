// Shared parts of kernels: operands, checks of indices, and the kernel that computes each element independently.
#pragma once

#include <cmath>
#include <limits>
#include <utility>

#include "kernels.h"
#include "queue.h"

namespace windrow::cuda {

using Call = KernelCall<float>;
using In = Matrix<const float>;
using Out = Matrix<float>;
using Indices = Matrix<const std::int32_t>;

/// The value of rows with a bad index.
inline constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

inline bool adds(const Call& call) { return call.write == Write::add; }

/// The first value of the attributes.
inline float value_of(const Call& call) { return static_cast<float>(call.attributes.values[0]); }

inline constexpr float lowest = -std::numeric_limits<float>::infinity();

/// The share of a term in a sum of exponentials whose logarithm is `result`; 0 if that sum is 0.
WINDROW_ON_DEVICE inline float share_of(float term, float result) {
  return std::exp(term - (result == lowest ? -lowest : result));
}

WINDROW_ON_DEVICE inline Index parts_of(Index whole, Index part) { return (whole + part - 1) / part; }

template <class T>
WINDROW_ON_DEVICE T& at(const Matrix<T>& matrix, Index row, Index column) {
  return matrix.data[row * matrix.stride + column];
}

/// The matrix as one row, if no matrix of the call has gaps between its rows.
template <class T>
Matrix<T> flat(const Matrix<T>& matrix, bool dense) {
  const Index elements = matrix.rows * matrix.width;
  return dense && elements > 0 ? Matrix<T>{matrix.data, 1, elements, elements} : matrix;
}

WINDROW_ON_DEVICE inline void write(float& to, float value, bool add) { to = add ? to + value : value; }

/// A sum of many floats. Its error does not grow with their number: blocks are summed in float, and the block sums in
/// double.
class LongSum {
 public:
  WINDROW_ON_DEVICE void operator+=(float value) {
    block_ += value;
    if (++added_ < 64) return;
    sum_ += block_;
    block_ = 0;
    added_ = 0;
  }
  WINDROW_ON_DEVICE operator float() const { return static_cast<float>(sum_ + block_); }

 private:
  double sum_ = 0;
  float block_ = 0;
  int added_ = 0;
};

WINDROW_ON_DEVICE inline bool within(Index i, Index count) { return 0 <= i && i < count; }

struct Segment {
  Index first, last;

  /// False if the segment does not lie within that many rows.
  WINDROW_ON_DEVICE bool good(Index rows) const { return 0 <= first && first <= last && last <= rows; }
};
WINDROW_ON_DEVICE inline Segment segment_of(const Indices& bounds, Index r) {
  return {at(bounds, r, 0), at(bounds, r, 1)};
}

/// The first row of ascending `indices` whose first column is not below `row`.
WINDROW_ON_DEVICE inline Index place_in(const Indices& indices, Index row) {
  Index first = 0, last = indices.rows;
  while (first < last) {
    const Index middle = (first + last) / 2;
    if (at(indices, middle, 0) < row) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  return first;
}

/// True if `value`, which comes after `top`, replaces it as the maximum. The first NaN wins.
WINDROW_ON_DEVICE inline bool exceeds(float value, float top) { return top == top && !(value <= top); }

/// The row of a column's first NaN, or of its first maximum if it has no NaN. The segment is not empty.
WINDROW_ON_DEVICE inline Index first_maximum(const In& x, Index column, Segment segment) {
  Index top = segment.first;
  float value = at(x, top, column);
  for (Index r = top + 1; r < segment.last; ++r) {
    const float next = at(x, r, column);
    if (!exceeds(next, value)) continue;
    top = r;
    value = next;
  }
  return top;
}

/// Arguments of most kernels: operands x and y, the gradient g of a result, and indices.
struct OfX {
  In x;
  void accesses(Accesses& to) const { to.all(x); }
};
struct OfXY {
  In x, y;
  void accesses(Accesses& to) const { to.all(x, y); }
};
struct OfXG {
  In x, g;
  void accesses(Accesses& to) const { to.all(x, g); }
};
struct OfXAndIndices {
  In x;
  Indices indices;
  void accesses(Accesses& to) const { to.all(x, indices); }
};
struct OfXGAndIndices {
  In x, g;
  Indices indices;
  void accesses(Accesses& to) const { to.all(x, g, indices); }
};

/// Runs one thread per element of the result. `Value` has a name, computes value(row, column), and lists its accesses.
template <class Value>
struct EachElement {
  static constexpr const char* name = Value::name;
  Value value;
  Out out;
  bool add;

  WINDROW_ON_DEVICE void operator()(auto& team) const {
    if (out.rows == 1) {  // without a division
      for_all(team, out.width, [&](Index c) { write(at(out, 0, c), value(0, c), add); });
    } else {
      for_elements(team, out.rows, out.width, [&](Index r, Index c) { write(at(out, r, c), value(r, c), add); });
    }
  }
  void accesses(Accesses& to) const { to.all(value, out); }
};

/// Fills the fields of a kernel from a call: its operands, indices and numbers, each in their order.
class FieldsOfCall {
 public:
  explicit FieldsOfCall(const Call& call) : call_(call) {}
  operator In() { return call_.in[in_++]; }
  operator Indices() { return call_.indices[indices_++]; }
  operator float() { return static_cast<float>(call_.attributes.values[values_++]); }

 private:
  const Call& call_;
  std::size_t in_ = 0, indices_ = 0, values_ = 0;
};
/// Makes a struct of matrices, followed by at most one number.
template <class Value, std::size_t... numbers>
Value made_from(const Call& call, std::index_sequence<numbers...>) {
  FieldsOfCall field(call);
  return {(static_cast<void>(numbers), field)...};
}
template <class Value>
Value made_from(const Call& call) {
  return made_from<Value>(call, std::make_index_sequence<(sizeof(Value) + sizeof(In) - 1) / sizeof(In)>());
}

template <class Value>
int run_each(const Call& call, const Queue& queue, const Value& value) {
  const Out out = call.out;
  return launch(queue, shape_for_elements(queue, out.rows * out.width), EachElement<Value>{value, out, adds(call)});
}
template <class Value>
int run_each(const Call& call, const Queue& queue) {
  return run_each(call, queue, made_from<Value>(call));
}
/// The table entry of a kernel whose name is that of its operator.
template <class Value>
constexpr KernelEntry each = {Value::name, run_each<Value>};

}  // namespace windrow::cuda
