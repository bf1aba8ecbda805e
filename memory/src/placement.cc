#include "placement.h"

#include <algorithm>
#include <limits>
#include <numeric>

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

  Placement place(const Order& order) {
    placement_ = {std::vector<std::size_t>(order.size(), unplaced), 0};
    by_offset_.clear();
    for (const std::uint32_t buffer : order) put(buffer, offset_for(buffer));
    return placement_;
  }

 private:
  static constexpr std::size_t unplaced = std::numeric_limits<std::size_t>::max();

  std::size_t bytes(std::uint32_t buffer) const { return lifetimes_.buffers[buffer].bytes; }
  std::size_t end(std::uint32_t buffer) const { return placement_.offsets[buffer] + bytes(buffer); }

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
    for (const std::uint32_t other : by_offset_) {
      if (!lifetimes_.together.get(buffer, other)) continue;
      const std::size_t offset = placement_.offsets[other], from = aligned_size(free_from, alignment);
      if (from + bytes(buffer) <= offset && offset - free_from < least_gap) {
        best = from;
        least_gap = offset - free_from;
      }
      free_from = std::max(free_from, end(other));
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
    return std::none_of(by_offset_.begin(), by_offset_.end(), [&](std::uint32_t other) {
      return lifetimes_.together.get(buffer, other) && placement_.offsets[other] < offset + bytes(buffer) &&
             offset < end(other) && !is_overlay(buffer, offset, other);
    });
  }

  void put(std::uint32_t buffer, std::size_t offset) {
    placement_.offsets[buffer] = offset;
    placement_.bytes = std::max(placement_.bytes, end(buffer));
    const auto less = [&](std::uint32_t a, std::uint32_t b) { return placement_.offsets[a] < placement_.offsets[b]; };
    by_offset_.insert(std::upper_bound(by_offset_.begin(), by_offset_.end(), buffer, less), buffer);
  }

  const Lifetimes& lifetimes_;
  std::vector<std::vector<std::uint32_t>> overlays_of_;  // by buffer
  Placement placement_;
  Order by_offset_;  // the buffers that are placed
};

Order by_size(const Lifetimes& lifetimes) {
  Order order(lifetimes.buffers.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return lifetimes.buffers[a].bytes > lifetimes.buffers[b].bytes;
  });
  return order;
}

}  // namespace

Placement best_placement(const Lifetimes& lifetimes, std::size_t, std::uint64_t) {
  return BestFit(lifetimes).place(by_size(lifetimes));
}

}  // namespace windrow
