#include "placement.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <utility>

namespace windrow {
namespace {

using Order = std::vector<std::uint32_t>;

/// Places buffers one by one, each into the smallest gap between those that it is together with.
class BestFit {
 public:
  explicit BestFit(const Lifetimes& lifetimes) : lifetimes_(lifetimes), overlays_of_(lifetimes.buffers.size()) {
    for (std::uint32_t i = 0; i < lifetimes.overlays.size(); ++i) {
      overlays_of_[lifetimes.overlays[i].operand].push_back(i);
      overlays_of_[lifetimes.overlays[i].result].push_back(i);
    }
  }

  /// Gives up when the placement takes more than `limit` bytes.
  Placement place(const Order& order, std::size_t limit) {
    placement_ = {std::vector<std::size_t>(order.size(), unplaced), 0};
    by_offset_.clear();
    for (auto buffer = order.begin(); buffer != order.end() && placement_.bytes <= limit; ++buffer) {
      put(*buffer, offset_for(*buffer));
    }
    return placement_;
  }

 private:
  struct Placed {
    std::size_t offset, end;
    std::uint32_t buffer;
  };
  static constexpr std::size_t unplaced = std::numeric_limits<std::size_t>::max();

  std::size_t bytes(std::uint32_t buffer) const { return lifetimes_.buffers[buffer].bytes; }

  std::size_t offset_for(std::uint32_t buffer) const {
    const std::size_t beside = offset_beside(buffer);
    std::size_t best = beside;
    for (const std::uint32_t overlay : overlays_of_[buffer]) {
      const std::size_t over = offset_over(buffer, lifetimes_.overlays[overlay]);
      if (over == unplaced || !is_free_over(buffer, over)) continue;
      if (over + bytes(buffer) <= std::max(placement_.bytes, beside + bytes(buffer))) best = over;
    }
    return best;
  }

  /// In the smallest gap that is large enough; otherwise after all others that the buffer is together with.
  std::size_t offset_beside(std::uint32_t buffer) const {
    const std::size_t alignment = lifetimes_.buffers[buffer].alignment;
    std::size_t free_from = 0, best = unplaced, least_gap = unplaced;
    for (const Placed& other : by_offset_) {
      if (!lifetimes_.together.get(buffer, other.buffer)) continue;
      if (other.offset >= free_from + bytes(buffer) && other.offset - free_from < least_gap) {
        const std::size_t from = aligned_size(free_from, alignment);
        if (from + bytes(buffer) <= other.offset) {
          best = from;
          least_gap = other.offset - free_from;
        }
      }
      free_from = std::max(free_from, other.end);
    }
    return best != unplaced ? best : aligned_size(free_from, alignment);
  }

  /// Where an overlay with a buffer that is placed puts this one.
  std::size_t offset_over(std::uint32_t buffer, const Lifetimes::Overlay& overlay) const {
    const bool is_result = overlay.result == buffer;
    const std::size_t other = placement_.offsets[is_result ? overlay.operand : overlay.result];
    if (other == unplaced) return unplaced;
    const std::ptrdiff_t offset = static_cast<std::ptrdiff_t>(other) + (is_result ? overlay.delta : -overlay.delta);
    if (offset < 0 || static_cast<std::size_t>(offset) % lifetimes_.buffers[buffer].alignment != 0) return unplaced;
    return static_cast<std::size_t>(offset);
  }

  bool is_overlay(std::uint32_t buffer, std::size_t offset, std::uint32_t other) const {
    return std::any_of(overlays_of_[buffer].begin(), overlays_of_[buffer].end(), [&](std::uint32_t i) {
      const Lifetimes::Overlay& overlay = lifetimes_.overlays[i];
      return (overlay.operand == other || overlay.result == other) && offset_over(buffer, overlay) == offset;
    });
  }

  bool is_free_over(std::uint32_t buffer, std::size_t offset) const {
    return std::none_of(by_offset_.begin(), by_offset_.end(), [&](const Placed& other) {
      return other.offset < offset + bytes(buffer) && offset < other.end &&
             lifetimes_.together.get(buffer, other.buffer) && !is_overlay(buffer, offset, other.buffer);
    });
  }

  void put(std::uint32_t buffer, std::size_t offset) {
    const Placed placed{offset, offset + bytes(buffer), buffer};
    placement_.offsets[buffer] = offset;
    placement_.bytes = std::max(placement_.bytes, placed.end);
    const auto less = [](const Placed& a, const Placed& b) { return a.offset < b.offset; };
    by_offset_.insert(std::upper_bound(by_offset_.begin(), by_offset_.end(), placed, less), placed);
  }

  const Lifetimes& lifetimes_;
  std::vector<std::vector<std::uint32_t>> overlays_of_;  // by buffer
  Placement placement_;
  std::vector<Placed> by_offset_;
};

/// Numbers of buffers in descending order of a key; ties in descending order of size, then ascending order of number.
template <class Key>
Order descending(const Lifetimes& lifetimes, const Key& key) {
  Order order(lifetimes.buffers.size());
  std::iota(order.begin(), order.end(), 0u);
  const auto rank = [&](std::uint32_t i) { return std::pair(key(i), lifetimes.buffers[i].bytes); };
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return rank(a) > rank(b); });
  return order;
}

double length_of(const Lifetimes::Buffer& buffer) {
  return static_cast<double>(buffer.end) - static_cast<double>(buffer.begin);
}

/// Large buffers, long lives, or both first.
std::vector<Order> initial_orders(const Lifetimes& lifetimes) {
  const auto& buffers = lifetimes.buffers;
  const auto size = [&](std::uint32_t i) { return static_cast<double>(buffers[i].bytes); };
  const auto length = [&](std::uint32_t i) { return length_of(buffers[i]); };
  return {descending(lifetimes, size), descending(lifetimes, length),
          descending(lifetimes, [&](std::uint32_t i) { return size(i) * length(i); })};
}

/// Searches for better orders: a buffer at the end of the block changes its turn with an earlier one.
class OrderSearch {
 public:
  OrderSearch(const Lifetimes& lifetimes, std::size_t lower_bound)
      : lifetimes_(lifetimes), lower_bound_(lower_bound), fit_(lifetimes) {}

  Placement run(std::uint64_t effort) {
    const std::uint64_t each = std::uint64_t{lifetimes_.buffers.size()} * lifetimes_.buffers.size() / 2 + 1;
    const std::uint64_t tries = std::clamp<std::uint64_t>(effort / each, 1, most_tries);
    std::vector<Order> orders = initial_orders(lifetimes_);
    std::uint64_t best_at = 0;
    for (std::uint64_t i = 0; i < tries && best_.bytes > lower_bound_ && i - best_at < most_vain; ++i) {
      const std::size_t before = best_.bytes;
      keep_if_as_good(i < orders.size() ? std::move(orders[i]) : changed());
      if (best_.bytes < before) best_at = i;
    }
    return std::move(best_);
  }

 private:
  static constexpr std::uint64_t most_tries = 400, most_vain = 100;  // more of them seldom help

  void keep_if_as_good(Order order) {
    Placement placement = fit_.place(order, best_.bytes);
    if (placement.bytes > best_.bytes) return;
    best_ = std::move(placement);
    order_ = std::move(order);
  }

  Order changed() {
    Order order = order_;
    std::vector<std::size_t> at_end;
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (best_.offsets[order[i]] + lifetimes_.buffers[order[i]].bytes == best_.bytes) at_end.push_back(i);
    }
    const std::size_t from = at_end[random_() % at_end.size()];
    std::swap(order[from], order[random_() % (from + 1)]);
    return order;
  }

  const Lifetimes& lifetimes_;
  const std::size_t lower_bound_;
  BestFit fit_;
  std::mt19937 random_{1};
  Order order_;
  Placement best_{.offsets = {}, .bytes = std::numeric_limits<std::size_t>::max()};
};

}  // namespace

Placement best_placement(const Lifetimes& lifetimes, std::size_t lower_bound, std::uint64_t effort) {
  if (lifetimes.buffers.empty()) return {};
  return OrderSearch(lifetimes, lower_bound).run(effort);
}

}  // namespace windrow
