// Which buffers of a program are alive together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "windrow/memory/planner.h"

namespace windrow {

/// A matrix of bits: sets of numbers below `columns`, one for each row. A value.
class BitRows {
 public:
  BitRows(std::size_t rows, std::size_t columns) : words_((columns + 63) / 64), bits_(rows * words_) {}

  bool get(std::size_t row, std::size_t column) const {
    return (bits_[row * words_ + column / 64] >> (column % 64) & 1) != 0;
  }
  void set(std::size_t row, std::size_t column) {
    bits_[row * words_ + column / 64] |= std::uint64_t{1} << (column % 64);
  }
  /// Adds the numbers of another row to a row.
  void add_row(std::size_t row, std::size_t other) {
    for (std::size_t i = 0; i < words_; ++i) bits_[row * words_ + i] |= bits_[other * words_ + i];
  }

 private:
  std::size_t words_;  // in a row
  std::vector<std::uint64_t> bits_;
};

/// A program whose views are resolved: buffers that are no views, and who uses them. A value.
struct BufferUses {
  /// Throws MisuseError; see plan_memory().
  explicit BufferUses(const MemoryProgram& program);

  /// A result that may begin `delta` bytes after the beginning of an operand, both of them buffers.
  struct Overlay {
    std::uint32_t step, operand, result;
    std::ptrdiff_t delta;
  };

  const MemoryProgram& program;
  std::vector<std::uint32_t> root;                   // the buffer of each view, or itself
  std::vector<std::size_t> root_offset;              // where a view begins in its buffer
  std::vector<std::vector<std::uint32_t>> steps_of;  // ascending, for each buffer; empty for views
  std::vector<std::vector<std::uint32_t>> before;    // the steps that must finish directly before each step
  std::vector<Overlay> overlays;
};

/// The buffers that take bytes, numbered from 0, and which of them are alive together. A value.
struct Lifetimes {
  explicit Lifetimes(const BufferUses& uses);

  struct Buffer {
    std::uint32_t number;  // in the program
    std::size_t bytes;     // a multiple of the least alignment of all
    std::size_t alignment;
    std::int64_t begin, end;  // of its use, if each step begins as early as possible and takes a unit of time
  };
  /// As BufferUses::Overlay, for a step after all other users of the operand, and before all other users of the result.
  struct Overlay {
    std::uint32_t operand, result;
    std::ptrdiff_t delta;
    std::int64_t begin;  // of the step
  };

  std::vector<Buffer> buffers;
  BitRows together;  // symmetric; no buffer is together with itself
  std::vector<Overlay> overlays;

  /// The most bytes that are alive at one moment if each step begins as early as possible; overlays share what they can
  /// at most. No placement takes less.
  std::size_t peak() const;
};

}  // namespace windrow
