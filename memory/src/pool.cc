#include "windrow/memory/pool.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

namespace windrow {

Pool::Pool(std::shared_ptr<Allocator> below, PoolOptions options)
    : below_(std::move(below)), limit_(options.limit), name_("pool of " + std::string(below_->name())) {}

Pool::~Pool() {
  assert(stats_.in_use == 0);
  trim();
}

// Size classes count units of memory_alignment: 1, 2, 3, 4, and from there four steps to each power of two.
static std::size_t class_of(std::size_t bytes) {
  const std::size_t units = aligned_size(std::max<std::size_t>(bytes, 1)) / memory_alignment;
  if (units <= 4) return units - 1;
  const int shift = std::bit_width(units - 1) - 3;       // a step is 2^shift units
  const std::size_t steps = ((units - 1) >> shift) + 1;  // 5 to 8
  return static_cast<std::size_t>(shift) * 4 + steps - 1;
}

static std::size_t bytes_of(std::size_t size_class) {
  const std::size_t units = size_class < 4 ? size_class + 1 : (size_class % 4 + 5) << (size_class / 4 - 1);
  return units * memory_alignment;
}

std::size_t Pool::rounded(std::size_t bytes) { return bytes_of(class_of(bytes)); }

std::byte* Pool::allocate(std::size_t bytes) {
  const std::size_t size_class = class_of(bytes);
  if (std::byte* kept = reuse_or_reserve(size_class)) return kept;
  try {
    return allocate_below(bytes_of(size_class));
  } catch (...) {
    std::lock_guard lock(mutex_);
    stats_.in_use -= bytes_of(size_class);
    throw;
  }
}

/// A kept piece, or null when the bytes are counted as in use and are to be taken from below.
std::byte* Pool::reuse_or_reserve(std::size_t size_class) {
  const std::size_t bytes = bytes_of(size_class);
  std::unique_lock lock(mutex_);
  if (bytes > limit_ - stats_.in_use) throw OutOfMemory(why_not(bytes, std::to_string(limit_) + " is the limit"));
  std::vector<std::byte*>& pieces = kept_[size_class];
  std::byte* start = nullptr;
  if (!pieces.empty()) {
    start = pieces.back();
    pieces.pop_back();
    stats_.kept -= bytes;
    ++stats_.reused;
  }
  stats_.in_use += bytes;
  stats_.peak_in_use = std::max(stats_.peak_in_use, stats_.in_use);
  ++stats_.allocations;
  const bool crowded = stats_.kept > limit_ - stats_.in_use;
  lock.unlock();
  if (crowded) trim();
  return start;
}

std::byte* Pool::allocate_below(std::size_t bytes) {
  try {
    return below_->allocate(bytes);
  } catch (const OutOfMemory&) {
    trim();
  }
  try {
    return below_->allocate(bytes);
  } catch (const OutOfMemory& e) {
    std::lock_guard lock(mutex_);
    throw OutOfMemory(why_not(bytes, e.what()));
  }
}

void Pool::deallocate(std::byte* start, std::size_t bytes) noexcept {
  const std::size_t size_class = class_of(bytes);
  std::unique_lock lock(mutex_);
  stats_.in_use -= bytes_of(size_class);
  try {
    kept_[size_class].push_back(start);
    stats_.kept += bytes_of(size_class);
  } catch (const std::bad_alloc&) {
    lock.unlock();
    below_->deallocate(start, bytes_of(size_class));
  }
}

void Pool::trim() noexcept {
  decltype(kept_) pieces;
  {
    std::lock_guard lock(mutex_);
    pieces.swap(kept_);
    stats_.kept = 0;
  }
  for (std::size_t size_class = 0; size_class < pieces.size(); ++size_class) {
    for (std::byte* start : pieces[size_class]) below_->deallocate(start, bytes_of(size_class));
  }
}

std::string Pool::why_not(std::size_t bytes, std::string_view reason) const {
  return name_ + ": " + std::to_string(bytes) + " bytes are not to be had; " + std::to_string(stats_.in_use) +
         " are in use, and " + std::string(reason);
}

PoolStats Pool::stats() const {
  std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace windrow
