// A matrix of bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace windrow {

/// A value. Sets of numbers below `columns`, one for each row.
class BitRows {
 public:
  BitRows() = default;
  BitRows(std::size_t rows, std::size_t columns) : words_((columns + 63) / 64), bits_(rows * words_) {}

  bool get(std::size_t row, std::size_t column) const { return (words(row)[column / 64] >> (column % 64) & 1) != 0; }
  void set(std::size_t row, std::size_t column) { mine(row)[column / 64] |= std::uint64_t{1} << (column % 64); }
  void clear(std::size_t row, std::size_t column) { mine(row)[column / 64] &= ~(std::uint64_t{1} << (column % 64)); }
  /// Adds the numbers of a row of `other`, which has as many columns, to a row.
  void add_row(std::size_t row, const BitRows& other, std::size_t other_row) {
    for (std::size_t i = 0; i < words_; ++i) mine(row)[i] |= other.words(other_row)[i];
  }
  bool empty() const { return bits_.empty(); }
  /// The words of a row: number i is bit i % 64 of word i / 64.
  const std::uint64_t* words(std::size_t row) const { return bits_.data() + row * words_; }

 private:
  std::uint64_t* mine(std::size_t row) { return bits_.data() + row * words_; }

  std::size_t words_ = 0;  // in a row
  std::vector<std::uint64_t> bits_ = {};
};

}  // namespace windrow
