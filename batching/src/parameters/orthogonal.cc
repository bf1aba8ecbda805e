#include "parameters/orthogonal.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace windrow {
namespace {

/// A tall matrix in double precision, whose columns become orthonormal.
class Columns {
 public:
  Columns(std::size_t height, std::size_t count)
      : height_(height), count_(count), elements_(height * count), dots_(count) {}
  double& at(std::size_t row, std::size_t column) { return elements_[row * count_ + column]; }

  /// The modified process of Gram and Schmidt: divides each column by its length, and subtracts its direction from the
  /// columns behind it. Lengths are positive, so the directions of independent normal numbers are uniform. Double
  /// precision leaves errors far below those of float, since square normal matrices of n columns have condition numbers
  /// of about n. The loops run along rows, which lie in memory one element after the other.
  void orthonormalise() {
    for (std::size_t k = 0; k < count_; ++k) {
      double squares = 0;
      for (std::size_t r = 0; r < height_; ++r) squares += at(r, k) * at(r, k);
      const double length = std::sqrt(squares);
      for (std::size_t r = 0; r < height_; ++r) at(r, k) /= length;
      subtract_from_later(k);
    }
  }

 private:
  void subtract_from_later(std::size_t k) {
    std::fill(dots_.begin(), dots_.end(), 0.0);
    for (std::size_t r = 0; r < height_; ++r) {
      for (std::size_t c = k + 1; c < count_; ++c) dots_[c] += at(r, k) * at(r, c);
    }
    for (std::size_t r = 0; r < height_; ++r) {
      for (std::size_t c = k + 1; c < count_; ++c) at(r, c) -= at(r, k) * dots_[c];
    }
  }

  const std::size_t height_, count_;
  std::vector<double> elements_;
  std::vector<double> dots_;  // of a column with those behind it
};

}  // namespace

std::vector<float> orthogonal(const std::vector<float>& normal, MatrixShape shape, float gain) {
  const auto rows = static_cast<std::size_t>(shape.rows), width = static_cast<std::size_t>(shape.width);
  const bool tall = rows >= width;
  Columns columns(tall ? rows : width, tall ? width : rows);
  const auto element = [&](std::size_t r, std::size_t c) -> double& {
    return tall ? columns.at(r, c) : columns.at(c, r);
  };
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < width; ++c) element(r, c) = static_cast<double>(normal[r * width + c]);
  }
  columns.orthonormalise();
  std::vector<float> result(normal.size());
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < width; ++c) result[r * width + c] = gain * static_cast<float>(element(r, c));
  }
  return result;
}

}  // namespace windrow
