#include "windrow/memory/pool.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <limits>
#include <thread>
#include <utility>

namespace windrow {

/// No request is larger than that; see aligned_size().
constexpr std::size_t most_rounded = std::numeric_limits<std::size_t>::max() / 2;

Pool::Pool(std::shared_ptr<Allocator> below, PoolOptions options)
    : DividingAllocator(std::move(below), "pool"),
      limit_(options.limit),
      largest_piece_(options.largest_piece > most_rounded ? PoolOptions{}.largest_piece
                                                          : rounded(options.largest_piece)),
      patience_(options.patience),
      name_("pool of " + std::string(below_->name())) {}

Pool::~Pool() {
  assert(stats().in_use == 0);
  trim();
}

// Size classes in units of memory_alignment: 1, 2, 3, 4, then four classes up to each power of two.
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

/// The size doubles after this many classes.
constexpr std::size_t steps_to_double = 4;
/// A large piece may be larger than the request by at most this many classes.
constexpr std::size_t most_steps = 2 * steps_to_double;
static bool is_large(std::size_t size_class) { return bytes_of(size_class) >= std::size_t{1} << 20; }

std::size_t Pool::rounded(std::size_t bytes) { return bytes_of(class_of(bytes)); }

std::size_t Pool::counted(std::size_t bytes) const { return passes_on(bytes) ? aligned_size(bytes) : rounded(bytes); }

std::byte* Pool::allocate(std::size_t wanted) {
  if (patience_ <= std::chrono::nanoseconds(0)) return allocate_now(wanted);
  using Clock = std::chrono::steady_clock;
  const Clock::time_point now = Clock::now();
  const Clock::time_point deadline =
      patience_ < Clock::time_point::max() - now ? now + patience_ : Clock::time_point::max();
  while (true) {
    std::uint64_t frees = 0;
    {
      MutexLock lock(mutex_);
      frees = frees_;
    }
    try {
      return allocate_now(wanted);
    } catch (const OutOfMemory&) {
      if (!wait_for_free(frees, deadline)) throw;
    }
  }
}

bool Pool::wait_for_free(std::uint64_t frees, std::chrono::steady_clock::time_point deadline) {
  MutexLock lock(mutex_);
  ++waiting_;
  bool in_time = true;
  while (in_time && frees_ == frees && stats_.in_use > 0) in_time = freed_.wait_until(mutex_, deadline);
  --waiting_;
  return frees_ != frees;
}

void Pool::count_free() {
  ++frees_;
  if (waiting_ > 0) freed_.notify_all();
}

std::byte* Pool::allocate_now(std::size_t wanted) {
  const std::size_t bytes = counted(wanted);
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
  } catch (...) {  // such as that the device has failed
    MutexLock lock(mutex_);
    stats_.in_use -= bytes;
    throw;
  }
}

/// Returns a kept piece; or null after counting the bytes as in use, and then the caller takes them from below.
std::byte* Pool::reuse_or_reserve(std::size_t bytes) {
  MutexLock lock(mutex_);
  const std::size_t size_class = class_of(bytes);
  const Piece piece = passes_on(bytes) ? Piece{} : take_kept(size_class);
  if (piece.start == nullptr) {
    if (bytes > limit_ - stats_.in_use) throw refusal(bytes, std::to_string(limit_) + " is the limit");
    stats_.in_use += bytes;
    const auto is_crowded = [this]() WINDROW_REQUIRES(mutex_) { return stats_.kept > limit_ - stats_.in_use; };
    const Piece outgrown = is_crowded() || passes_on(bytes) ? Piece{} : take_outgrown(size_class);
    for (bool again = false; is_crowded(); again = true) {
      lock.unlock();
      if (again) std::this_thread::yield();  // another thread has freed a piece meanwhile, or still returns one
      give_back_kept(0);
      lock.lock();
    }
    lock.unlock();
    if (outgrown.start != nullptr) give_back(outgrown);
    return nullptr;
  }
  stats_.kept -= bytes_of(piece.size_class);
  stats_.in_use += bytes_of(piece.size_class);
  ++stats_.reused;
  count_allocation();
  return piece.start;
}

Pool::Piece Pool::take_kept(std::size_t size_class) {
  const std::size_t last = std::min(is_large(size_class) ? size_class + most_steps : size_class, kept_.size() - 1);
  for (std::size_t other = size_class; other <= last; ++other) {
    // Other threads may have been let in on the condition that this piece goes back.
    if (bytes_of(other) > limit_ - stats_.in_use) break;
    if (kept_[other].empty()) continue;
    std::byte* const start = kept_[other].back();
    if (other != size_class) {
      try {
        larger_.emplace(start, other);
      } catch (const std::bad_alloc&) {
        break;
      }
    }
    kept_[other].pop_back();
    return {start, other};
  }
  return {};
}

Pool::Piece Pool::take_outgrown(std::size_t size_class) {
  if (!is_large(size_class)) return {};
  for (std::size_t other = size_class; other-- + steps_to_double > size_class && is_large(other);) {
    if (kept_[other].empty()) continue;
    std::byte* const start = kept_[other].back();
    kept_[other].pop_back();
    return {start, other};
  }
  return {};
}

/// Returns a piece to the allocator below. Its bytes count as kept until it is returned.
void Pool::give_back(Piece piece) {
  MutexLock trimming(trimming_);
  below_->deallocate(piece.start, bytes_of(piece.size_class));
  MutexLock lock(mutex_);
  stats_.kept -= bytes_of(piece.size_class);
}

std::byte* Pool::take_from_below(std::size_t bytes) {
  try {
    return below_->allocate(bytes);
  } catch (const OutOfMemory&) {
    give_back_kept(0);
    return below_->allocate(bytes);
  }
}

void Pool::count_allocation() {
  ++stats_.allocations;
  stats_.peak_in_use = std::max(stats_.peak_in_use, stats_.in_use);
}

void Pool::deallocate(std::byte* start, std::size_t wanted) noexcept {
  std::size_t size_class = class_of(wanted);
  MutexLock lock(mutex_);
  if (passes_on(wanted)) {
    lock.unlock();
    below_->deallocate(start, counted(wanted));
    lock.lock();
    stats_.in_use -= counted(wanted);
    count_free();
    return;
  }
  if (is_large(size_class)) {
    if (const auto larger = larger_.find(start); larger != larger_.end()) {
      size_class = larger->second;
      larger_.erase(larger);
    }
  }
  const std::size_t bytes = bytes_of(size_class);
  try {
    kept_[size_class].push_back(start);
    stats_.kept += bytes;
  } catch (const std::bad_alloc&) {
    lock.unlock();
    below_->deallocate(start, bytes);
    lock.lock();
  }
  stats_.in_use -= bytes;
  count_free();
}

void Pool::trim(std::size_t keep) noexcept {
  give_back_kept(keep);
  const std::size_t kept = stats().kept;
  below_->trim(keep - std::min(keep, kept));
}

void Pool::give_back_kept(std::size_t keep) noexcept {
  MutexLock trimming(trimming_);
  for (std::size_t size_class = kept_classes; size_class-- > 0;) {
    std::vector<std::byte*> pieces;
    {
      MutexLock lock(mutex_);
      if (stats_.kept <= keep) return;
      std::vector<std::byte*>& kept = kept_[size_class];
      if (kept.empty()) continue;
      const std::size_t needed = (stats_.kept - keep - 1) / bytes_of(size_class) + 1;
      if (needed >= kept.size()) {
        pieces.swap(kept);
      } else {
        // If there is no memory for the list, the whole class is returned.
        try {
          pieces.assign(kept.end() - static_cast<std::ptrdiff_t>(needed), kept.end());
          kept.resize(kept.size() - needed);
        } catch (const std::bad_alloc&) {
          pieces.swap(kept);
        }
      }
    }
    for (std::byte* const start : pieces) below_->deallocate(start, bytes_of(size_class));
    MutexLock lock(mutex_);
    stats_.kept -= pieces.size() * bytes_of(size_class);
  }
}

MemoryUse Pool::use() const {
  MemoryUse use = below_->use();
  MutexLock lock(mutex_);
  use.live = stats_.in_use;
  use.peak_live = stats_.peak_in_use;
  use.cached += stats_.kept;
  use.limit = std::min(use.limit, limit_);
  for (std::size_t size_class = kept_classes; size_class-- > 0;) {
    if (kept_[size_class].empty()) continue;
    use.largest_cached = std::max(use.largest_cached, bytes_of(size_class));
    break;
  }
  return use;
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
