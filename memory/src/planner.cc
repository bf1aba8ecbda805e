#include "windrow/memory/internal/planner.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

namespace windrow {
namespace {

using Numbers = std::vector<std::uint32_t>;

bool held_before(Held held) { return held == Held::before || held == Held::throughout; }
bool held_after(Held held) { return held == Held::after || held == Held::throughout; }

/// A square matrix of bits: for each number a set of numbers. A value.
class BitRows {
 public:
  explicit BitRows(std::size_t count) : words_((count + 63) / 64), bits_(count * words_) {}

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

/// Which buffers of a program are alive at the same time, and which may begin where another one begins.
class Lives {
 public:
  explicit Lives(const MemoryProgram& program)
      : program_(program),
        steps_of_(program.buffers.size()),
        before_(program.steps.size()),
        together_(program.buffers.size()),
        overlays_(program.buffers.size()) {
    order_steps();
    for (std::uint32_t a = 0; a < steps_of_.size(); ++a) {
      for (std::uint32_t b = 0; b < a && takes_bytes(a); ++b) {
        if (!takes_bytes(b) || ends_before(a, b) || ends_before(b, a)) continue;
        together_.set(a, b);
        together_.set(b, a);
      }
    }
    for (std::uint32_t step = 0; step < program.steps.size(); ++step) {
      for (const auto& [operand, result] : program.steps[step].in_place) {
        if (!is_last_and_first(step, operand, result)) continue;
        overlays_[operand].push_back(result);
        overlays_[result].push_back(operand);
      }
    }
  }

  bool takes_bytes(std::uint32_t buffer) const {
    const PlannedBuffer& of = program_.buffers[buffer];
    return of.bytes > 0 && (!steps_of_[buffer].empty() || of.held != Held::no);
  }
  bool together(std::uint32_t a, std::uint32_t b) const { return together_.get(a, b); }
  /// The buffers that may begin where this one begins, although they are alive at the same time.
  const Numbers& overlays(std::uint32_t buffer) const { return overlays_[buffer]; }

 private:
  /// Readers of a buffer come after its last writer, and a writer after all earlier users.
  void order_steps() {
    Numbers writer(steps_of_.size(), no_buffer);
    std::vector<Numbers> readers(steps_of_.size());  // since the last writer
    for (std::uint32_t step = 0; step < program_.steps.size(); ++step) {
      const auto follow = [&](std::uint32_t other) {
        if (other == no_buffer || other == step) return;
        before_.add_row(step, other);
        before_.set(step, other);
      };
      const auto use = [&](std::uint32_t buffer) {
        follow(writer[buffer]);
        Numbers& steps = steps_of_[buffer];
        if (steps.empty() || steps.back() != step) steps.push_back(step);
      };
      if (program_.order == StepOrder::serial && step > 0) follow(step - 1);
      for (const std::uint32_t buffer : program_.steps[step].reads) {
        use(buffer);
        readers[buffer].push_back(step);
      }
      for (const std::uint32_t buffer : program_.steps[step].writes) {
        use(buffer);
        std::ranges::for_each(std::exchange(readers[buffer], {}), follow);
        writer[buffer] = step;
      }
    }
  }

  Held held(std::uint32_t buffer) const { return program_.buffers[buffer].held; }

  /// Whether all steps that use the one finish before any step that uses the other begins.
  bool ends_before(std::uint32_t one, std::uint32_t other) const {
    if (held_after(held(one)) || held_before(held(other))) return false;
    // A buffer that is not held before the program has a first writer, which precedes all other users.
    return steps_of_[other].empty() || std::ranges::all_of(steps_of_[one], [&](std::uint32_t step) {
             return before_.get(steps_of_[other].front(), step);
           });
  }

  /// Whether the step comes after all other users of the operand, and before all other users of the result.
  bool is_last_and_first(std::uint32_t step, std::uint32_t operand, std::uint32_t result) const {
    if (operand == result || held_after(held(operand)) || held_before(held(result))) return false;
    const auto is_before = [&](std::uint32_t one) { return one == step || before_.get(step, one); };
    const auto is_behind = [&](std::uint32_t one) { return one == step || before_.get(one, step); };
    return std::ranges::all_of(steps_of_[operand], is_before) && std::ranges::all_of(steps_of_[result], is_behind);
  }

  const MemoryProgram& program_;
  std::vector<Numbers> steps_of_;  // ascending, by buffer
  BitRows before_;                 // of each step: the steps that finish before it
  BitRows together_;
  std::vector<Numbers> overlays_;
};

/// Places buffers one by one, each into the smallest gap between buffers that are alive at the same time.
class BestFit {
 public:
  BestFit(const MemoryProgram& program, const Lives& lives)
      : program_(program), lives_(lives), offsets_(program.buffers.size(), unplaced) {}

  void place(std::uint32_t buffer) {
    const std::size_t beside = offset_beside(buffer);
    std::size_t best = beside;
    for (const std::uint32_t other : lives_.overlays(buffer)) {
      const std::size_t over = offsets_[other];
      if (over == unplaced || !is_free_over(buffer, over)) continue;
      if (over + bytes(buffer) <= std::max(bytes_, beside + bytes(buffer))) best = over;
    }
    offsets_[buffer] = best;
    bytes_ = std::max(bytes_, best + bytes(buffer));
    const auto at = [&](std::uint32_t placed) { return offsets_[placed]; };
    by_offset_.insert(std::ranges::upper_bound(by_offset_, best, {}, at), buffer);
  }

  std::size_t size() const { return bytes_; }
  /// Ends the use of this object.
  std::vector<std::size_t> take_offsets() {
    std::ranges::replace(offsets_, unplaced, std::size_t{0});
    return std::move(offsets_);
  }

 private:
  static constexpr std::size_t unplaced = std::numeric_limits<std::size_t>::max();

  std::size_t bytes(std::uint32_t buffer) const {
    return aligned_size(program_.buffers[buffer].bytes, program_.alignment);
  }

  /// The offset of the smallest gap that is large enough, or else after all buffers that are alive with this one.
  std::size_t offset_beside(std::uint32_t buffer) const {
    std::size_t free_from = 0, best = unplaced, least_gap = unplaced;
    for (const std::uint32_t other : by_offset_) {
      if (!lives_.together(buffer, other)) continue;
      const std::size_t begin = offsets_[other];
      if (begin >= free_from + bytes(buffer) && begin - free_from < least_gap) {
        best = free_from;
        least_gap = begin - free_from;
      }
      free_from = std::max(free_from, begin + bytes(other));
    }
    return best != unplaced ? best : free_from;
  }

  bool is_free_over(std::uint32_t buffer, std::size_t offset) const {
    return std::ranges::none_of(by_offset_, [&](std::uint32_t other) {
      const std::size_t begin = offsets_[other];
      const bool meets = begin < offset + bytes(buffer) && offset < begin + bytes(other);
      const bool may = begin == offset && std::ranges::count(lives_.overlays(buffer), other) > 0;
      return meets && lives_.together(buffer, other) && !may;
    });
  }

  const MemoryProgram& program_;
  const Lives& lives_;
  std::vector<std::size_t> offsets_;
  Numbers by_offset_;
  std::size_t bytes_ = 0;
};

}  // namespace

std::uint32_t MemoryProgram::add(PlannedBuffer buffer) {
  buffers.push_back(buffer);
  return static_cast<std::uint32_t>(buffers.size() - 1);
}

std::uint32_t MemoryProgram::add(PlannedStep step) {
  steps.push_back(std::move(step));
  return static_cast<std::uint32_t>(steps.size() - 1);
}

MemoryPlan plan_memory(const MemoryProgram& program) {
  MemoryPlan plan;
  for (const PlannedBuffer& buffer : program.buffers) {
    plan.unshared_bytes += aligned_size(buffer.bytes, program.alignment);
    aligned_size(plan.unshared_bytes);  // throws if sums are not representable
  }
  const Lives lives(program);
  Numbers buffers;
  for (std::uint32_t i = 0; i < program.buffers.size(); ++i) {
    if (lives.takes_bytes(i)) buffers.push_back(i);
  }
  const auto size = [&](std::uint32_t i) { return static_cast<double>(program.buffers[i].bytes); };
  const auto meets = [&](std::uint32_t i) {
    return static_cast<double>(std::ranges::count_if(buffers, [&](std::uint32_t k) { return lives.together(i, k); }));
  };
  // Large buffers, those that meet many others, or both first.
  const std::function<double(std::uint32_t)> keys[] = {size, meets,
                                                       [&](std::uint32_t i) { return size(i) * meets(i); }};
  plan.bytes = std::numeric_limits<std::size_t>::max();
  for (const auto& key : keys) {
    std::vector<double> of(program.buffers.size());
    for (const std::uint32_t i : buffers) of[i] = key(i);
    const auto rank = [&](std::uint32_t i) { return std::pair(of[i], size(i)); };
    std::ranges::stable_sort(buffers, std::greater<>(), rank);
    BestFit fit(program, lives);
    for (const std::uint32_t buffer : buffers) fit.place(buffer);
    if (fit.size() >= plan.bytes) continue;
    plan.bytes = fit.size();
    plan.offsets = fit.take_offsets();
  }
  return plan;
}

}  // namespace windrow
