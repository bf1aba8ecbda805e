// Sums of many rows, whose error does not grow with their number.
//
// The larger a float sum is, the more of each addend is lost: the sum of four million equal floats is off by a
// thousandth if they are added one after the other. So sums of many rows add up blocks in float, and the sums of the
// blocks in double. The blocks depend on the number of rows alone.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <algorithm>
#include <array>
#include <vector>

#include "windrow/ops/internal/matrix.h"

namespace windrow {

/// The rows of a block. At most this many rows are added one after the other to a float sum.
inline constexpr Index rows_of_block = 64;

/// add_blocks() for more rows than a block has. A separate function, so that callers inline only the code for few rows.
template <class Add>
[[gnu::noinline]] void add_many_blocks(float* to, Index width, Index count, Add add) {
  constexpr Index strip = 1024;  // of each row, a page: shorter ones are read more slowly
  std::array<float, strip> part;
  std::array<double, strip> total;
  for (Index begin = 0; begin < width; begin += strip) {
    const Index n = std::min(strip, width - begin);
    std::copy_n(to + begin, n, total.begin());
    for (Index first = 0; first < count; first += rows_of_block) {
      std::fill_n(part.begin(), n, 0.0f);
      add(first, std::min(first + rows_of_block, count), begin, part.data(), n);
      for (std::size_t c = 0; c < static_cast<std::size_t>(n); ++c) total[c] += static_cast<double>(part[c]);
    }
    std::transform(total.begin(), total.begin() + n, to + begin, [](double sum) { return static_cast<float>(sum); });
  }
}

/// Adds `count` rows to the `width` elements at `to`. add(first, last, begin, part, n) adds the n elements from `begin`
/// on of rows [first, last), in order, to those at `part`. Allocates nothing.
template <class Add>
inline void add_blocks(float* to, Index width, Index count, Add add) {
  if (count <= rows_of_block) return add(Index{0}, count, Index{0}, to, width);
  add_many_blocks(to, width, count, add);
}

/// add_blocks() by a function that adds one row: add(i, begin, part, n).
template <class Add>
void add_rows(float* to, Index width, Index count, Add add) {
  add_blocks(to, width, count, [&](Index first, Index last, Index begin, float* part, Index n) {
    for (Index i = first; i < last; ++i) add(i, begin, part, n);
  });
}

/// Adds `count` matrices to `to`, by a function that adds one to a whole matrix:
///
///   windrow::MatrixSum sum(out, images);
///   for (Index i = 0; i < images; ++i) add_product(i, sum.next());
///   sum.finish();
///
/// Up to `of_block` matrices are added to `to` one after the other. With more, allocates three times the memory of
/// `to`.
class MatrixSum {
 public:
  MatrixSum(Matrix<float> to, Index count, Index of_block = rows_of_block) : to_(to), of_block_(of_block) {
    if (count <= of_block) return;
    part_.resize(static_cast<std::size_t>(to.rows * to.width));
    total_.resize(part_.size());
  }

  /// Where the next matrix is added. Valid until the next call.
  Matrix<float> next() {
    if (part_.empty()) return to_;
    if (added_ == of_block_) take_block();
    ++added_;
    return {part_.data(), to_.rows, to_.width, to_.width};
  }

  /// `to` has its sum from now on.
  void finish() {
    if (part_.empty()) return;
    take_block();
    const double* sum = total_.data();
    for (Index r = 0; r < to_.rows; ++r) {
      for (Index c = 0; c < to_.width; ++c) {
        float& out = to_.row(r)[c];
        out = static_cast<float>(static_cast<double>(out) + *sum++);
      }
    }
  }

 private:
  void take_block() {
    for (std::size_t i = 0; i < part_.size(); ++i) total_[i] += static_cast<double>(part_[i]);
    std::fill(part_.begin(), part_.end(), 0.0f);
    added_ = 0;
  }

  const Matrix<float> to_;
  const Index of_block_;
  std::vector<float> part_;  // the sum of `added_` matrices
  std::vector<double> total_;
  Index added_ = 0;
};

}  // namespace windrow
