// Which buffers of a program are alive together, under an order of its steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "bit_rows.h"
#include "windrow/memory/planner.h"

namespace windrow {

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

/// A strict partial order of the steps of a program. A value.
///
/// Invariant: if u precedes v, then u < v or its time ends before v's begins; and its time ends before v's begins.
class PartialOrder {
 public:
  struct Time {
    std::int64_t begin, end;
  };

  /// Each step after the one before it.
  static PartialOrder serial(const BufferUses& uses);
  /// By BufferUses::before alone; times are those of steps that begin as early as possible.
  static PartialOrder dependences(const BufferUses& uses);
  /// By the same times: u precedes v if it ends before v begins.
  static PartialOrder earliest(const BufferUses& uses);

  bool precedes(std::size_t u, std::size_t v) const {
    return is_by_time() ? times_[u].end <= times_[v].begin : before_.get(v, u);
  }
  /// Whether the times are all there is to the order.
  bool is_by_time() const { return before_.empty(); }
  const std::vector<Time>& times() const { return times_; }

 private:
  std::vector<Time> times_;
  BitRows before_;  // of each step: the steps that precede it; empty if the times are the order
};

/// The buffers that take bytes, numbered from 0, and which of them are alive together. A value.
struct Lifetimes {
  Lifetimes(const BufferUses& uses, const PartialOrder& order);

  struct Buffer {
    std::uint32_t number;  // in the program
    std::size_t bytes;     // a multiple of the least alignment of all
    std::size_t alignment;
    PartialOrder::Time time;  // from the first use to the end of the last one
  };
  /// As BufferUses::Overlay, for a step after all other users of the operand, and before all other users of the result.
  struct Overlay {
    std::uint32_t operand, result;
    std::ptrdiff_t delta;
    std::uint32_t step;
  };

  std::vector<Buffer> buffers;  // ascending by time.begin
  BitRows together;             // symmetric; no buffer is together with itself
  std::vector<Overlay> overlays;
};

/// The most bytes that are alive at one moment when each step runs at its time; overlays share what they can at most.
/// No placement takes less.
std::size_t peak_of(const Lifetimes& lifetimes, const PartialOrder& order);

/// The most bytes of buffers of which each two are together, overlays left out: a maximum antichain of the order of
/// lives, by Dilworth's theorem the sum of all bytes less a maximum flow from buffers to ones that end before them. No
/// placement takes less. 0 if it is not found in reasonable time.
std::size_t antichain_of(const Lifetimes& lifetimes);

}  // namespace windrow
