#include "windrow/memory/pool.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

namespace windrow {

static std::shared_ptr<Allocator> present(std::shared_ptr<Allocator> below) {
  if (below == nullptr) throw MisuseError("pool: no allocator below; expected one");
  return below;
}

Pool::Pool(std::shared_ptr<Allocator> below, PoolOptions options)
    : below_(present(std::move(below))), limit_(options.limit), name_("pool of " + std::string(below_->name())) {}

Pool::~Pool() {
  assert(stats().in_use == 0);
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

std::byte* Pool::allocate(std::size_t wanted) {
  const std::size_t bytes = rounded(wanted);
  if (std::byte* kept = reuse_or_reserve(bytes)) return kept;
  try {
    std::byte* start = take_from_below(bytes);
    MutexLock lock(mutex_);
    count_allocation();
    return start;
  } catch (const OutOfMemory& e) {
    MutexLock lock(mutex_);
    stats_.in_use -= bytes;
    throw refusal(bytes, e.what());
  }
}

/// A kept piece, or null when the bytes are counted as in use and are to be taken from below.
std::byte* Pool::reuse_or_reserve(std::size_t bytes) {
  MutexLock lock(mutex_);
  std::vector<std::byte*>& pieces = kept_[class_of(bytes)];
  if (pieces.empty()) {
    if (bytes > limit_ - stats_.in_use) throw refusal(bytes, std::to_string(limit_) + " is the limit");
    stats_.in_use += bytes;
    const bool crowded = stats_.kept > limit_ - stats_.in_use;
    lock.unlock();
    if (crowded) trim();
    return nullptr;
  }
  std::byte* start = pieces.back();
  pieces.pop_back();
  stats_.kept -= bytes;
  stats_.in_use += bytes;
  ++stats_.reused;
  count_allocation();
  return start;
}

std::byte* Pool::take_from_below(std::size_t bytes) {
  try {
    return below_->allocate(bytes);
  } catch (const OutOfMemory&) {
    trim();
    return below_->allocate(bytes);
  }
}

void Pool::count_allocation() {
  ++stats_.allocations;
  stats_.peak_in_use = std::max(stats_.peak_in_use, stats_.in_use);
}

void Pool::deallocate(std::byte* start, std::size_t wanted) noexcept {
  const std::size_t bytes = rounded(wanted);
  MutexLock lock(mutex_);
  stats_.in_use -= bytes;
  try {
    kept_[class_of(bytes)].push_back(start);
    stats_.kept += bytes;
  } catch (const std::bad_alloc&) {
    lock.unlock();
    below_->deallocate(start, bytes);
  }
}

void Pool::trim() noexcept {
  MutexLock trimming(trimming_);
  decltype(kept_) pieces;
  {
    MutexLock lock(mutex_);
    pieces.swap(kept_);
  }
  std::size_t returned = 0;
  for (std::size_t size_class = 0; size_class < pieces.size(); ++size_class) {
    for (std::byte* start : pieces[size_class]) below_->deallocate(start, bytes_of(size_class));
    returned += pieces[size_class].size() * bytes_of(size_class);
  }
  MutexLock lock(mutex_);
  stats_.kept -= returned;
}

OutOfMemory Pool::refusal(std::size_t bytes, std::string_view reason) const {
  return OutOfMemory(name_ + ": " + std::to_string(bytes) + " bytes are not to be had; " +
                     std::to_string(stats_.in_use) + " are in use, and " + std::string(reason));
}

PoolStats Pool::stats() const {
  MutexLock lock(mutex_);
  return stats_;
}

}  // namespace windrow
