#include "windrow/memory/segments.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <limits>

#include "windrow/memory/pool.h"

namespace windrow {

/// With a least size that can be rounded up. No memory is that large, so requests then get segments of their own sizes.
static SegmentsOptions saturated(SegmentsOptions options) {
  options.least = std::min(options.least, std::numeric_limits<std::size_t>::max() / 4);
  return options;
}

Segments::Segments(std::shared_ptr<Allocator> below, SegmentsOptions options)
    : DividingAllocator(std::move(below), "segments"), options_(saturated(options)) {}

Segments::~Segments() {
  assert(stats().in_use == 0);
  trim();
}

std::byte* Segments::allocate(std::size_t wanted) {
  const std::size_t bytes = aligned_size(std::max<std::size_t>(wanted, 1), alignment());
  const bool small = is_small(bytes);
  {
    MutexLock lock(mutex_);
    if (std::byte* const start = take_free(bytes, small)) return start;
  }
  MutexLock growing(growing_);
  const auto take = [&] {
    MutexLock lock(mutex_);
    return take_free(bytes, small);
  };
  // Another thread may have added a segment or freed a block meanwhile.
  if (std::byte* const start = take()) return start;
  const std::size_t preferred = std::max(aligned_size(options_.least, alignment()),
                                         aligned_size(options_.fast_below ? bytes : Pool::rounded(bytes), alignment()));
  while (true) {
    try {
      give_back(options_.fast_below ? 0 : preferred / 2, preferred);
      add_segment(preferred, small);
    } catch (const OutOfMemory&) {
      give_back(0, std::numeric_limits<std::size_t>::max());
      try {
        add_segment(bytes, small);
      } catch (const OutOfMemory&) {
        MutexLock lock(mutex_);
        if (std::byte* const start = take_free(bytes, !small)) return start;
        throw;
      }
    }
    // Another thread may have been faster.
    if (std::byte* const start = take()) return start;
  }
}

void Segments::require_within_limit(std::size_t more) const {
  const SegmentsStats now = stats();
  const std::size_t taken = now.in_use + now.free;
  if (more <= options_.limit - std::min(taken, options_.limit)) return;
  throw OutOfMemory(std::string(name()) + ": " + std::to_string(more) + " bytes beside the " + std::to_string(taken) +
                    " taken would exceed the limit of " + std::to_string(options_.limit));
}

void Segments::add_segment(std::size_t bytes, bool small) {
  require_within_limit(bytes);
  std::byte* const start = below_->allocate(bytes);
  try {
    FreeBlocks one;
    one.emplace(bytes, start);
    MutexLock lock(mutex_);
    const auto [block, is_new] = blocks_.try_emplace(start, Block{bytes, true, small, one.extract(one.begin())});
    ++stats_.segments;
    ++stats_.taken;
    stats_.in_use += bytes;
    free(block);
  } catch (const std::bad_alloc&) {
    below_->deallocate(start, bytes);
    throw OutOfMemory(std::string(name()) + ": no memory of the host to note " + std::to_string(bytes) + " bytes");
  }
}

/// The smallest block that is large enough; null if there is none.
std::byte* Segments::take_free(std::size_t bytes, bool small) {
  FreeBlocks& blocks = free_[small ? 1 : 0];
  const auto found = blocks.lower_bound({bytes, nullptr});
  if (found == blocks.end()) return nullptr;
  std::byte* const start = found->second;
  const auto block = blocks_.find(start);
  const std::size_t rest = block->second.bytes - bytes;
  if (rest > 0) {
    try {
      const auto after = blocks_.try_emplace(std::next(block), start + bytes, Block{rest, false, small});
      try {
        blocks.emplace(rest, start + bytes);
      } catch (const std::bad_alloc&) {
        blocks_.erase(after);
        throw;
      }
      block->second.bytes = bytes;
    } catch (const std::bad_alloc&) {  // the block is given undivided
    }
  }
  block->second.node = blocks.extract(found);
  stats_.in_use += block->second.bytes;
  stats_.peak_in_use = std::max(stats_.peak_in_use, stats_.in_use);
  stats_.free -= block->second.bytes;
  return start;
}

void Segments::deallocate(std::byte* start, std::size_t) noexcept {
  MutexLock lock(mutex_);
  free(blocks_.find(start));
}

void Segments::free(Blocks::iterator block) noexcept {
  stats_.in_use -= block->second.bytes;
  stats_.free += block->second.bytes;
  block->second.node.value() = {block->second.bytes, block->first};
  free_like(block->second).insert(std::move(block->second.node));
  join_next(block);
  if (!block->second.begins_segment && std::prev(block)->second.node.empty()) join_next(std::prev(block));
}

void Segments::join_next(Blocks::iterator block) noexcept {
  const auto next = std::next(block);
  if (next == blocks_.end() || next->second.begins_segment || !next->second.node.empty()) return;
  FreeBlocks& blocks = free_like(block->second);
  blocks.erase({next->second.bytes, next->first});
  auto node = blocks.extract({block->second.bytes, block->first});
  block->second.bytes += next->second.bytes;
  node.value().first = block->second.bytes;
  blocks.insert(std::move(node));
  blocks_.erase(next);
}

bool Segments::is_whole_segment(Blocks::const_iterator block) const {
  const auto next = std::next(block);
  return block->second.begins_segment && (next == blocks_.end() || next->second.begins_segment);
}

void Segments::give_back(std::size_t from, std::size_t to, std::size_t keep) noexcept {
  while (true) {
    std::pair<std::size_t, std::byte*> unused{0, nullptr};
    {
      MutexLock lock(mutex_);
      for (FreeBlocks& blocks : free_) {
        if (stats_.free <= keep) return;
        for (auto it = blocks.lower_bound({from, nullptr}); it != blocks.end() && it->first <= to; ++it) {
          const auto block = blocks_.find(it->second);
          if (!is_whole_segment(block)) continue;
          unused = *it;
          stats_.free -= unused.first;
          --stats_.segments;
          blocks_.erase(block);
          blocks.erase(it);
          break;
        }
        if (unused.second != nullptr) break;
      }
    }
    if (unused.second == nullptr) return;
    below_->deallocate(unused.second, unused.first);
  }
}

void Segments::trim(std::size_t keep) noexcept {
  MutexLock growing(growing_);
  give_back(0, std::numeric_limits<std::size_t>::max(), keep);
}

MemoryUse Segments::use() const {
  const SegmentsStats now = stats();
  return {.live = now.in_use,
          .peak_live = now.peak_in_use,
          .cached = now.free,
          .largest_cached = now.largest_free,
          .limit = options_.limit};
}

SegmentsStats Segments::stats() const {
  MutexLock lock(mutex_);
  SegmentsStats stats = stats_;
  for (const FreeBlocks& blocks : free_) {
    if (!blocks.empty()) stats.largest_free = std::max(stats.largest_free, blocks.rbegin()->first);
  }
  return stats;
}

}  // namespace windrow
