#include "lifetimes.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace windrow {
namespace {

using Time = PartialOrder::Time;

bool held_before(Held held) { return held == Held::before || held == Held::throughout; }
bool held_after(Held held) { return held == Held::after || held == Held::throughout; }

constexpr Time always{std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()};

/// From the first use to the end of the last one. A buffer that is held and not used is alive outside the program only.
Time life_of(const BufferUses& uses, std::size_t buffer, const std::vector<Time>& times) {
  const Held held = uses.program.buffers[buffer].held;
  Time life{always.end - 1, always.begin + 1};
  for (const std::uint32_t step : uses.steps_of[buffer]) {
    life.begin = std::min(life.begin, times[step].begin);
    life.end = std::max(life.end, times[step].end);
  }
  if (held_before(held)) life.begin = always.begin;
  if (held_after(held)) life.end = always.end;
  return life;
}

/// The times of steps that begin as early as possible.
std::vector<Time> earliest_times(const BufferUses& uses) {
  std::vector<Time> times;
  for (std::size_t step = 0; step < uses.before.size(); ++step) {
    std::int64_t begin = 0;
    for (const std::uint32_t other : uses.before[step]) begin = std::max(begin, times[other].end);
    times.push_back({begin, begin + std::max<std::int64_t>(uses.program.steps[step].duration, 1)});
  }
  return times;
}

/// Of steps in ascending order: those that precede no other one of them.
std::vector<std::uint32_t> last_of(const std::vector<std::uint32_t>& steps, const PartialOrder& order) {
  std::vector<std::uint32_t> lasts;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const auto follows = [&](std::uint32_t last) { return order.precedes(*step, last); };
    if (std::none_of(lasts.begin(), lasts.end(), follows)) lasts.push_back(*step);
  }
  return lasts;
}

/// Of buffers in ascending order of their begin.
class LifeOrder {
 public:
  LifeOrder(const std::vector<Lifetimes::Buffer>& buffers, const BufferUses& uses, const PartialOrder& order)
      : buffers_(buffers),
        order_(order),
        first_(buffers.size(), none),
        last_(buffers.size(), none),
        other_lasts_(buffers.size()) {
    for (std::size_t i = 0; i < buffers.size() && !order.is_by_time(); ++i) {
      const std::vector<std::uint32_t>& steps = uses.steps_of[buffers[i].number];
      // A buffer that is not held before the program has a first writer, which precedes all other users.
      if (steps.empty()) continue;
      first_[i] = steps.front();
      if (buffers[i].time.end == always.end) continue;
      other_lasts_[i] = last_of(steps, order);
      last_[i] = other_lasts_[i].back();
      other_lasts_[i].pop_back();
    }
  }

  /// Whether a buffer that begins earlier ends before this one begins. If it does not, both are alive together.
  bool ends_before(std::size_t earlier, std::size_t buffer) const {
    if (buffers_[earlier].time.end > buffers_[buffer].time.begin) return false;
    if (order_.is_by_time() || last_[earlier] == none || first_[buffer] == none) return true;
    const auto precedes = [&](std::uint32_t step) { return order_.precedes(step, first_[buffer]); };
    return precedes(last_[earlier]) &&
           std::all_of(other_lasts_[earlier].begin(), other_lasts_[earlier].end(), precedes);
  }

 private:
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  const std::vector<Lifetimes::Buffer>& buffers_;
  const PartialOrder& order_;
  std::vector<std::uint32_t> first_, last_;              // steps
  std::vector<std::vector<std::uint32_t>> other_lasts_;  // further steps that precede no other user
};

BitRows together_of(const LifeOrder& order, std::size_t count) {
  BitRows together(count, count);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (order.ends_before(j, i)) continue;
      together.set(i, j);
      together.set(j, i);
    }
  }
  return together;
}

/// Whether the step comes after all other users of the operand, and before all other users of the result.
bool is_last_and_first(const BufferUses::Overlay& overlay, const BufferUses& uses, const PartialOrder& order) {
  if (held_after(uses.program.buffers[overlay.operand].held)) return false;
  if (held_before(uses.program.buffers[overlay.result].held)) return false;
  for (const std::uint32_t step : uses.steps_of[overlay.operand]) {
    if (step != overlay.step && !order.precedes(step, overlay.step)) return false;
  }
  for (const std::uint32_t step : uses.steps_of[overlay.result]) {
    if (step != overlay.step && !order.precedes(overlay.step, step)) return false;
  }
  return true;
}

}  // namespace

PartialOrder PartialOrder::serial(const BufferUses& uses) {
  PartialOrder order;
  for (std::size_t i = 0; i < uses.before.size(); ++i) {
    order.times_.push_back({static_cast<std::int64_t>(i), static_cast<std::int64_t>(i + 1)});
  }
  return order;
}

PartialOrder PartialOrder::earliest(const BufferUses& uses) {
  PartialOrder order;
  order.times_ = earliest_times(uses);
  return order;
}

PartialOrder PartialOrder::dependences(const BufferUses& uses) {
  PartialOrder order = earliest(uses);
  order.before_ = BitRows(uses.before.size(), uses.before.size());
  for (std::size_t step = 0; step < uses.before.size(); ++step) {
    for (const std::uint32_t other : uses.before[step]) {
      order.before_.add_row(step, order.before_, other);
      order.before_.set(step, other);
    }
  }
  return order;
}

Lifetimes::Lifetimes(const BufferUses& uses, const PartialOrder& order) {
  std::size_t least_alignment = std::numeric_limits<std::size_t>::max();
  for (std::uint32_t i = 0; i < uses.root.size(); ++i) {
    const PlannedBuffer& buffer = uses.program.buffers[i];
    const bool is_used = !uses.steps_of[i].empty();
    if (uses.root[i] != i || buffer.bytes == 0 || (!is_used && buffer.held == Held::no)) continue;
    least_alignment = std::min(least_alignment, buffer.alignment);
    buffers.push_back(
        {.number = i, .bytes = buffer.bytes, .alignment = buffer.alignment, .time = life_of(uses, i, order.times())});
  }
  std::stable_sort(buffers.begin(), buffers.end(),
                   [](const Buffer& a, const Buffer& b) { return a.time.begin < b.time.begin; });
  std::vector<std::uint32_t> index(uses.root.size(), no_buffer);
  for (std::uint32_t i = 0; i < buffers.size(); ++i) {
    buffers[i].bytes = aligned_size(buffers[i].bytes, least_alignment);
    index[buffers[i].number] = i;
  }
  together = together_of(LifeOrder(buffers, uses, order), buffers.size());
  for (const BufferUses::Overlay& overlay : uses.overlays) {
    const std::uint32_t operand = index[overlay.operand], result = index[overlay.result];
    if (operand == no_buffer || result == no_buffer || !is_last_and_first(overlay, uses, order)) continue;
    overlays.push_back({.operand = operand, .result = result, .delta = overlay.delta, .step = overlay.step});
  }
}

}  // namespace windrow
