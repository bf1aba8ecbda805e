#include "windrow/memory/pool.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <iterator>
#include <utility>

namespace windrow {
namespace {

constexpr std::size_t kib = 1024;
constexpr std::size_t most_small = 256 * kib;    // larger requests have no size class
constexpr std::size_t most_shared = 2048 * kib;  // larger requests have segments of their own

/// Size classes in units of memory_alignment: 1, 2, 3, 4, then four classes up to each power of two.
std::size_t class_of(std::size_t bytes) {
  const std::size_t units = aligned_size(std::max<std::size_t>(bytes, 1)) / memory_alignment;
  if (units <= 4) return units - 1;
  const int shift = std::bit_width(units - 1) - 3;       // a step is 2^shift units
  const std::size_t steps = ((units - 1) >> shift) + 1;  // 5 to 8
  return static_cast<std::size_t>(shift) * 4 + steps - 1;
}

std::size_t bytes_of(std::size_t size_class) {
  const std::size_t units = size_class < 4 ? size_class + 1 : (size_class % 4 + 5) << (size_class / 4 - 1);
  return units * memory_alignment;
}

}  // namespace

Pool::Pool(std::shared_ptr<Allocator> below, PoolOptions options)
    : DividingAllocator(std::move(below), "pool"),
      limit_(options.limit),
      patience_(options.patience),
      fast_below_(options.below == PoolOptions::Below::fast),
      name_("pool of " + std::string(below_->name())) {
  assert(class_of(most_small) + 1 == class_count);
}

Pool::~Pool() {
  assert(stats().in_use == 0);
  trim();
}

std::size_t Pool::rounded(std::size_t bytes) { return bytes_of(class_of(bytes)); }

std::size_t Pool::counted(std::size_t bytes) const {
  return aligned_size(bytes <= most_small ? rounded(bytes) : bytes, alignment());
}

std::size_t Pool::segment_for(std::size_t bytes) const {
  return fast_below_ ? std::max(1024 * kib, bytes) : std::max(2048 * kib, aligned_size(rounded(bytes), alignment()));
}

std::byte* Pool::allocate(std::size_t wanted) {
  std::uint64_t frees = 0;
  {
    MutexLock lock(mutex_);
    if (counted(wanted) <= admitted()) {
      if (std::byte* const start = take_kept(wanted)) {
        ++stats_.reused;
        return start;
      }
    }
    frees = frees_;
  }
  using Clock = std::chrono::steady_clock;
  const Clock::time_point now = Clock::now();
  const Clock::time_point deadline =
      patience_ < Clock::time_point::max() - now ? now + patience_ : Clock::time_point::max();
  while (true) {
    try {
      return grow(wanted);
    } catch (const OutOfMemory&) {
      if (reclaim()) continue;
      if (patience_ <= std::chrono::nanoseconds(0) || !wait_for_free(frees, deadline)) throw;
    }
  }
}

void Pool::add_reclaimable(std::weak_ptr<Reclaimable> what) {
  MutexLock lock(mutex_);
  std::erase_if(reclaimables_, [](const std::weak_ptr<Reclaimable>& each) { return each.expired(); });
  reclaimables_.push_back(std::move(what));
}

bool Pool::reclaim() {
  std::size_t count = 0;
  {
    MutexLock lock(mutex_);
    count = reclaimables_.size();
  }
  // A reclaimable moves to the end once it is asked. The lock is not held, because the memory that it frees comes to
  // deallocate().
  for (; count > 0; --count) {
    std::shared_ptr<Reclaimable> next;
    {
      MutexLock lock(mutex_);
      if (reclaimables_.empty()) return false;
      std::ranges::rotate(reclaimables_, reclaimables_.begin() + 1);
      next = reclaimables_.back().lock();
    }
    if (next != nullptr && next->reclaim(*this)) return true;
  }
  return false;
}

bool Pool::wait_for_free(std::uint64_t& frees, std::chrono::steady_clock::time_point deadline) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds between_looks{1};  // nobody is notified when an op releases reclaimable memory
  while (true) {
    {
      MutexLock lock(mutex_);
      const Clock::time_point look =
          reclaimables_.empty() ? deadline : std::min(deadline, Clock::now() + between_looks);
      ++waiting_;
      bool in_time = true;
      while (in_time && frees_ == frees && stats_.in_use > 0) in_time = freed_.wait_until(mutex_, look);
      --waiting_;
      if (std::exchange(frees, frees_) != frees_) return true;
      if (stats_.in_use == 0) return false;
    }
    if (reclaim()) return true;
    if (Clock::now() >= deadline) return false;
  }
}

std::byte* Pool::take_kept(std::size_t wanted) {
  const std::size_t bytes = counted(wanted);
  if (wanted <= most_small) {
    std::vector<std::byte*>& pieces = pieces_[class_of(wanted)];
    if (!pieces.empty()) {
      std::byte* const start = pieces.back();
      pieces.pop_back();
      return count_taken(start, bytes);
    }
  }
  return take_free(bytes, bytes <= most_shared);
}

/// The smallest block that is large enough.
std::byte* Pool::take_free(std::size_t bytes, bool shared) {
  FreeBlocks& blocks = free_[shared ? 1 : 0];
  const auto found = blocks.lower_bound({bytes, nullptr});
  if (found == blocks.end()) return nullptr;
  std::byte* const start = found->second;
  const auto block = blocks_.find(start);
  if (const std::size_t rest = block->second.bytes - bytes; rest > 0) {
    FreeBlocks one{{rest, start + bytes}};  // made first, so that nothing has changed if there is no memory for nodes
    blocks_.emplace_hint(std::next(block), start + bytes, Block{rest, false, shared});
    blocks.insert(one.extract(one.begin()));
    block->second.bytes = bytes;
  }
  block->second.node = blocks.extract(found);
  return count_taken(start, bytes);
}

std::byte* Pool::count_taken(std::byte* start, std::size_t bytes) {
  stats_.kept -= bytes;
  stats_.in_use += bytes;
  stats_.peak_in_use = std::max(stats_.peak_in_use, stats_.in_use);
  ++stats_.allocations;
  return start;
}

std::byte* Pool::grow(std::size_t wanted) {
  const std::size_t bytes = counted(wanted);
  {
    // Does not wait for a thread that grows: unused memory that goes back leaves in_use and promised_ as they are.
    MutexLock lock(mutex_);
    if (bytes > admitted()) refuse(bytes, stats_.in_use, over_limit(bytes, stats_.in_use + promised_));
    promised_ += bytes;
  }
  try {
    return grow_by(wanted);
  } catch (...) {
    MutexLock lock(mutex_);
    promised_ -= bytes;
    throw;
  }
}

std::byte* Pool::grow_by(std::size_t wanted) {
  const std::size_t bytes = counted(wanted), segment = segment_for(bytes);
  const bool shared = bytes <= most_shared;
  std::string refusal;
  const auto taken = [&](std::byte* start) WINDROW_REQUIRES(mutex_) {
    if (start != nullptr) promised_ -= bytes;
    return start;
  };
  const auto take = [&]() WINDROW_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return taken(take_kept(wanted));
  };
  MutexLock growing(growing_);
  const auto has_added = [&](std::size_t size) WINDROW_REQUIRES(growing_) {
    try {
      add_segment(size, shared);
      return true;
    } catch (const OutOfMemory& e) {
      refusal = e.what();
      return false;
    }
  };
  while (true) {
    // Another thread may have added a segment or freed a block meanwhile.
    if (std::byte* const start = take()) return start;
    give_back(fast_below_ ? 0 : segment / 2, segment, 0);
    if (has_added(segment)) continue;
    give_back(0, unlimited, 0);
    if (has_added(bytes)) continue;
    give_back_all(0);
    if (std::byte* const start = take()) return start;  // from pieces that were merged
    if (has_added(bytes)) continue;
    MutexLock lock(mutex_);
    if (std::byte* const start = taken(take_free(bytes, !shared))) return start;
    refuse(bytes, stats_.in_use, refusal);
  }
}

void Pool::refuse(std::size_t bytes, std::size_t in_use, const std::string& why) const {
  throw OutOfMemory(name_ + ": " + std::to_string(bytes) + " bytes are not to be had; " + std::to_string(in_use) +
                    " are in use, and " + why);
}

std::string Pool::over_limit(std::size_t bytes, std::size_t taken) const {
  return std::to_string(bytes) + " bytes beside the " + std::to_string(taken) + " taken would exceed the limit of " +
         std::to_string(limit_);
}

void Pool::add_segment(std::size_t bytes, bool shared) {
  const PoolStats now = stats();
  const std::size_t taken = now.in_use + now.kept;
  if (bytes > limit_ - taken) throw OutOfMemory(over_limit(bytes, taken));
  // Made first, so that nothing fails once the memory is taken.
  FreeBlocks free{{bytes, nullptr}};
  Blocks one;
  one.emplace(nullptr, Block{bytes, true, shared, free.extract(free.begin())});
  Blocks::node_type block = one.extract(one.begin());
  block.key() = below_->allocate(bytes);
  MutexLock lock(mutex_);
  stats_.kept += bytes;
  put_free(blocks_.insert(std::move(block)).position);
}

void Pool::deallocate(std::byte* start, std::size_t wanted) noexcept {
  const std::size_t bytes = counted(wanted);
  MutexLock lock(mutex_);
  stats_.in_use -= bytes;
  stats_.kept += bytes;
  ++frees_;
  if (waiting_ > 0) freed_.notify_all();
  if (wanted <= most_small) {
    try {
      return pieces_[class_of(wanted)].push_back(start);
    } catch (const std::bad_alloc&) {  // then it becomes a free block
    }
  }
  put_free(blocks_.find(start));
}

void Pool::put_free(Blocks::iterator block) noexcept {
  block->second.node.value() = {block->second.bytes, block->first};
  free_[block->second.shared ? 1 : 0].insert(std::move(block->second.node));
  join_next(block);
  if (!block->second.begins_segment && std::prev(block)->second.node.empty()) join_next(std::prev(block));
}

void Pool::join_next(Blocks::iterator block) noexcept {
  const auto next = std::next(block);
  if (next == blocks_.end() || next->second.begins_segment || !next->second.node.empty()) return;
  FreeBlocks& blocks = free_[block->second.shared ? 1 : 0];
  blocks.erase({next->second.bytes, next->first});
  auto node = blocks.extract({block->second.bytes, block->first});
  block->second.bytes += next->second.bytes;
  node.value().first = block->second.bytes;
  blocks.insert(std::move(node));
  blocks_.erase(next);
}

void Pool::free_kept_pieces() noexcept {
  MutexLock lock(mutex_);
  for (std::vector<std::byte*>& pieces : pieces_) {
    for (std::byte* const start : pieces) put_free(blocks_.find(start));
    pieces.clear();
  }
}

void Pool::give_back(std::size_t from, std::size_t to, std::size_t keep) noexcept {
  // The next free block, by size, that is a whole segment. Removes it.
  const auto next_unused = [&]() WINDROW_EXCLUDES(mutex_) -> std::pair<std::size_t, std::byte*> {
    MutexLock lock(mutex_);
    for (FreeBlocks& blocks : free_) {
      for (auto it = blocks.lower_bound({from, nullptr}); it != blocks.end() && it->first <= to; ++it) {
        if (stats_.kept <= keep) return {};
        const auto block = blocks_.find(it->second), next = std::next(block);
        if (!block->second.begins_segment || (next != blocks_.end() && !next->second.begins_segment)) continue;
        stats_.kept -= it->first;
        blocks_.erase(block);
        return blocks.extract(it).value();
      }
    }
    return {};
  };
  while (true) {
    const auto [bytes, start] = next_unused();
    if (start == nullptr) return;
    below_->deallocate(start, bytes);
  }
}

void Pool::give_back_all(std::size_t keep) noexcept {
  give_back(0, unlimited, keep);
  if (stats().kept <= keep) return;
  free_kept_pieces();
  give_back(0, unlimited, keep);
}

void Pool::trim(std::size_t keep) noexcept {
  MutexLock growing(growing_);
  give_back_all(keep);
  below_->trim(keep - std::min(keep, stats().kept));
}

MemoryUse Pool::use() const {
  MemoryUse use = below_->use();
  MutexLock lock(mutex_);
  use.live = stats_.in_use;
  use.peak_live = stats_.peak_in_use;
  use.cached += stats_.kept;
  use.limit = std::min(use.limit, limit_);
  for (std::size_t size_class = 0; size_class < class_count; ++size_class) {
    if (!pieces_[size_class].empty()) use.largest_cached = std::max(use.largest_cached, bytes_of(size_class));
  }
  for (const FreeBlocks& blocks : free_) {
    if (!blocks.empty()) use.largest_cached = std::max(use.largest_cached, blocks.rbegin()->first);
  }
  return use;
}

PoolStats Pool::stats() const {
  MutexLock lock(mutex_);
  return stats_;
}

}  // namespace windrow
