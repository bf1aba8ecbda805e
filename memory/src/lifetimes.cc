#include "lifetimes.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace windrow {
namespace {

bool held_before(Held held) { return held == Held::before || held == Held::throughout; }
bool held_after(Held held) { return held == Held::after || held == Held::throughout; }

/// The order of the steps that a program implies, and who uses its buffers when.
class LifeOrder {
 public:
  explicit LifeOrder(const BufferUses& uses)
      : uses_(uses), before_(uses.before.size(), uses.before.size()), begin_(uses.before.size()) {
    for (std::size_t step = 0; step < begin_.size(); ++step) {
      for (const std::uint32_t other : uses.before[step]) {
        before_.add_row(step, other);
        before_.set(step, other);
        begin_[step] = std::max(begin_[step], begin_[other] + 1);
      }
    }
  }

  std::int64_t begin_of(std::size_t step) const { return begin_[step]; }

  /// The first and the last moment of its life. A buffer that is held and not used is alive outside the program only.
  std::pair<std::int64_t, std::int64_t> life_of(std::uint32_t buffer) const {
    constexpr std::int64_t first = std::numeric_limits<std::int64_t>::min(), last = -(first + 1);
    std::pair life(last - 1, first + 1);
    for (const std::uint32_t step : uses_.steps_of[buffer]) {
      life.first = std::min(life.first, begin_[step]);
      life.second = std::max(life.second, begin_[step] + 1);
    }
    if (held_before(held(buffer))) life.first = first;
    if (held_after(held(buffer))) life.second = last;
    return life;
  }

  /// Whether all steps that use the one finish before any step that uses the other begins.
  bool ends_before(std::uint32_t one, std::uint32_t other) const {
    if (held_after(held(one)) || held_before(held(other))) return false;
    const std::vector<std::uint32_t>&first = uses_.steps_of[one], &then = uses_.steps_of[other];
    // A buffer that is not held before the program has a first writer, which precedes all other users.
    return then.empty() || std::all_of(first.rbegin(), first.rend(),
                                       [&](std::uint32_t step) { return before_.get(then.front(), step); });
  }

  /// Whether the step comes after all other users of the operand, and before all other users of the result.
  bool is_last_and_first(const BufferUses::Overlay& overlay) const {
    if (held_after(held(overlay.operand)) || held_before(held(overlay.result))) return false;
    return std::ranges::all_of(
               uses_.steps_of[overlay.operand],
               [&](std::uint32_t step) { return step == overlay.step || before_.get(overlay.step, step); }) &&
           std::ranges::all_of(uses_.steps_of[overlay.result], [&](std::uint32_t step) {
             return step == overlay.step || before_.get(step, overlay.step);
           });
  }

 private:
  Held held(std::uint32_t buffer) const { return uses_.program.buffers[buffer].held; }

  const BufferUses& uses_;
  BitRows before_;                   // of each step: the steps that precede it
  std::vector<std::int64_t> begin_;  // by step: as early as possible
};

std::vector<Lifetimes::Buffer> buffers_of(const BufferUses& uses, const LifeOrder& order) {
  std::vector<Lifetimes::Buffer> buffers;
  std::size_t least_alignment = std::numeric_limits<std::size_t>::max();
  for (std::uint32_t i = 0; i < uses.root.size(); ++i) {
    const PlannedBuffer& buffer = uses.program.buffers[i];
    const bool is_used = !uses.steps_of[i].empty();
    if (uses.root[i] != i || buffer.bytes == 0 || (!is_used && buffer.held == Held::no)) continue;
    least_alignment = std::min(least_alignment, buffer.alignment);
    const auto [begin, end] = order.life_of(i);
    buffers.push_back({i, buffer.bytes, buffer.alignment, begin, end});
  }
  for (Lifetimes::Buffer& buffer : buffers) buffer.bytes = aligned_size(buffer.bytes, least_alignment);
  std::ranges::stable_sort(buffers, {}, &Lifetimes::Buffer::begin);
  return buffers;
}

}  // namespace

Lifetimes::Lifetimes(const BufferUses& uses) : together(0, 0) {
  const LifeOrder order(uses);
  buffers = buffers_of(uses, order);
  together = BitRows(buffers.size(), buffers.size());
  std::vector<std::uint32_t> index(uses.root.size(), no_buffer);
  for (std::uint32_t i = 0; i < buffers.size(); ++i) {
    index[buffers[i].number] = i;
    for (std::uint32_t j = 0; j < i; ++j) {
      if (order.ends_before(buffers[j].number, buffers[i].number)) continue;
      if (order.ends_before(buffers[i].number, buffers[j].number)) continue;
      together.set(i, j);
      together.set(j, i);
    }
  }
  for (const BufferUses::Overlay& overlay : uses.overlays) {
    const std::uint32_t operand = index[overlay.operand], result = index[overlay.result];
    if (operand == no_buffer || result == no_buffer || !order.is_last_and_first(overlay)) continue;
    overlays.push_back({operand, result, overlay.delta, order.begin_of(overlay.step)});
  }
}

std::size_t Lifetimes::peak() const {
  // Changes of the bytes alive: a moment's decreases come before its increases.
  std::vector<std::pair<std::int64_t, std::ptrdiff_t>> changes;
  const auto add = [&](std::int64_t begin, std::int64_t end, std::ptrdiff_t bytes) {
    changes.emplace_back(begin, bytes);
    changes.emplace_back(end, -bytes);
  };
  for (const Buffer& buffer : buffers) add(buffer.begin, buffer.end, static_cast<std::ptrdiff_t>(buffer.bytes));
  std::vector<std::size_t> shared(buffers.size());  // by result, which is laid over one operand
  for (const Overlay& overlay : overlays) {
    const std::size_t most = std::min(buffers[overlay.operand].bytes, buffers[overlay.result].bytes);
    shared[overlay.result] = std::max(shared[overlay.result], most);
  }
  for (const Overlay& overlay : overlays) {
    const auto bytes = static_cast<std::ptrdiff_t>(std::exchange(shared[overlay.result], 0));
    add(overlay.begin, overlay.begin + 1, -bytes);
  }
  std::ranges::sort(changes);
  std::ptrdiff_t alive = 0, peak = 0;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    alive += changes[i].second;
    if (i + 1 == changes.size() || changes[i + 1].first != changes[i].first) peak = std::max(peak, alive);
  }
  return static_cast<std::size_t>(peak);
}

}  // namespace windrow
