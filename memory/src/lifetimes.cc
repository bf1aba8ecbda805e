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

/// From the first use to the end of the last one.
Time life_of(const BufferUses& uses, std::size_t buffer, const std::vector<Time>& times) {
  const Held held = uses.program.buffers[buffer].held;
  Time life{always.end, always.begin};
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

/// Of steps in ascending order: those that no other one of them precedes.
std::vector<std::uint32_t> first_of(const std::vector<std::uint32_t>& steps, const PartialOrder& order) {
  std::vector<std::uint32_t> firsts;
  for (const std::uint32_t step : steps) {
    const auto precedes = [&](std::uint32_t first) { return order.precedes(first, step); };
    if (std::none_of(firsts.begin(), firsts.end(), precedes)) firsts.push_back(step);
  }
  return firsts;
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

bool all_precede(const std::vector<std::uint32_t>& first, const std::vector<std::uint32_t>& then,
                 const PartialOrder& order) {
  for (const std::uint32_t u : first) {
    for (const std::uint32_t v : then) {
      if (!order.precedes(u, v)) return false;
    }
  }
  return true;
}

BitRows together_of(const Lifetimes& lifetimes, const BufferUses& uses, const PartialOrder& order) {
  const std::size_t count = lifetimes.buffers.size();
  BitRows together(count, count);
  std::vector<std::vector<std::uint32_t>> firsts(count), lasts(count);
  for (std::size_t i = 0; i < count && !order.is_by_time(); ++i) {
    const auto& buffer = lifetimes.buffers[i];
    if (buffer.time.begin != always.begin) firsts[i] = first_of(uses.steps_of[buffer.number], order);
    if (buffer.time.end != always.end) lasts[i] = last_of(uses.steps_of[buffer.number], order);
  }
  const auto precedes = [&](std::size_t i, std::size_t j) {
    if (lifetimes.buffers[i].time.end > lifetimes.buffers[j].time.begin) return false;
    return order.is_by_time() || all_precede(lasts[i], firsts[j], order);
  };
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (precedes(i, j) || precedes(j, i)) continue;
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
  std::vector<std::uint32_t> index(uses.root.size(), no_buffer);
  std::size_t least_alignment = std::numeric_limits<std::size_t>::max();
  for (std::uint32_t i = 0; i < uses.root.size(); ++i) {
    const PlannedBuffer& buffer = uses.program.buffers[i];
    if (uses.root[i] != i || buffer.bytes == 0) continue;
    if (uses.steps_of[i].empty() && buffer.held == Held::no) continue;
    index[i] = static_cast<std::uint32_t>(buffers.size());
    least_alignment = std::min(least_alignment, buffer.alignment);
    Time time = life_of(uses, i, order.times());
    if (uses.steps_of[i].empty()) time = always;
    buffers.push_back({.number = i, .bytes = buffer.bytes, .alignment = buffer.alignment, .time = time});
  }
  for (Buffer& buffer : buffers) buffer.bytes = aligned_size(buffer.bytes, least_alignment);
  together = together_of(*this, uses, order);
  for (const BufferUses::Overlay& overlay : uses.overlays) {
    const std::uint32_t operand = index[overlay.operand], result = index[overlay.result];
    if (operand == no_buffer || result == no_buffer || !is_last_and_first(overlay, uses, order)) continue;
    overlays.push_back({.operand = operand, .result = result, .delta = overlay.delta, .step = overlay.step});
  }
}

std::size_t peak_of(const Lifetimes& lifetimes, const BufferUses& uses, const std::vector<Time>& times) {
  // Changes of the bytes alive: a moment's decreases come before its increases.
  std::vector<std::pair<std::int64_t, std::ptrdiff_t>> changes;
  const auto add = [&](Time time, std::size_t bytes, int sign) {
    const auto change = sign * static_cast<std::ptrdiff_t>(bytes);
    changes.emplace_back(time.begin, change);
    changes.emplace_back(time.end, -change);
  };
  for (const Lifetimes::Buffer& buffer : lifetimes.buffers) {
    const bool is_used = !uses.steps_of[buffer.number].empty();
    add(is_used ? life_of(uses, buffer.number, times) : always, buffer.bytes, 1);
  }
  // A result is laid over one operand, whose bytes it shares at most.
  std::vector<std::size_t> saved(lifetimes.buffers.size());
  for (const Lifetimes::Overlay& overlay : lifetimes.overlays) {
    saved[overlay.result] = std::max(saved[overlay.result], std::min(lifetimes.buffers[overlay.operand].bytes,
                                                                     lifetimes.buffers[overlay.result].bytes));
  }
  for (const Lifetimes::Overlay& overlay : lifetimes.overlays) {
    add(times[overlay.step], std::exchange(saved[overlay.result], 0), -1);
  }
  std::sort(changes.begin(), changes.end());
  std::ptrdiff_t alive = 0, peak = 0;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    alive += changes[i].second;
    if (i + 1 == changes.size() || changes[i + 1].first != changes[i].first) peak = std::max(peak, alive);
  }
  return static_cast<std::size_t>(peak);
}

}  // namespace windrow
