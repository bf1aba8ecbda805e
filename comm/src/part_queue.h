// Which part of which call moves next. Knows no tensors and no network: MPI's root and simulated networks ask it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

namespace windrow::comm {

/// Calls that are ready at all members, cut into parts. The call of the highest priority moves first, and the earlier
/// one of two equal calls. So a call waits only for the parts that move, and not for whole calls. At most `window`
/// bytes move at a time, or one part (the credit of ByteScheduler, Peng et al. 2019). An owner; one thread at a time.
class PartQueue {
 public:
  struct Work {
    std::uint64_t call = 0;  ///< its number
    int priority = 0;
    std::size_t bytes = 0;
    std::size_t part_bytes = 0;  ///< of all parts but the last; 0: one part
  };
  struct Part {
    std::uint64_t call = 0;
    std::size_t bytes = 0;
    bool last = false;  ///< of its call
  };

  explicit PartQueue(std::size_t window) : window_(window) {}

  void add(const Work& work) { waiting_.emplace(Key{-std::int64_t{work.priority}, work.call}, work); }
  /// The part that begins to move now, if one may.
  std::optional<Part> next() {
    if (waiting_.empty()) return {};
    const auto first = waiting_.begin();
    Work& work = first->second;
    const std::size_t bytes = work.part_bytes == 0 ? work.bytes : std::min(work.bytes, work.part_bytes);
    if (moving_ > 0 && moving_bytes_ + bytes > window_) return {};
    ++moving_;
    moving_bytes_ += bytes;
    work.bytes -= bytes;
    const Part part{work.call, bytes, work.bytes == 0};
    if (part.last) waiting_.erase(first);
    return part;
  }
  /// A part that next() returned has moved.
  void ended(std::size_t bytes) {
    --moving_;
    moving_bytes_ -= bytes;
  }

 private:
  using Key = std::pair<std::int64_t, std::uint64_t>;  // the smallest one is next
  const std::size_t window_;
  std::map<Key, Work> waiting_;
  std::size_t moving_ = 0, moving_bytes_ = 0;
};

}  // namespace windrow::comm
