// A pool: an allocator that takes segments from the allocator below, divides them, and keeps what is freed.
//
// Small requests, up to 256 KiB, are rounded up to size classes, four per power of two, so at most a fifth of a piece
// is unused. A freed piece is kept for the next request of its class, and costs a few instructions. A large request
// gets the smallest free block that is large enough. The rest of that block stays free, and a freed block is merged
// with its free neighbours. So large requests of varying sizes, such as those of minibatches, use the same memory.
//
// Requests up to 2 MiB share segments: they often live long, as parameters and their gradients do, and would keep the
// rest of a larger segment from serving the next minibatch.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "windrow/engine/internal/mutex.h"
#include "windrow/memory/allocator.h"

namespace windrow {

struct PoolOptions {
  /// The most bytes taken from the allocator below, including those kept for reuse.
  std::size_t limit = unlimited;
  /// Deprecated, without effect: requests of all sizes share segments.
  std::size_t largest_piece = unlimited;
  /// How long an allocation that would fail waits for other threads to free memory; nanoseconds::max() means without a
  /// limit. It blocks its thread. If that is the only thread that runs ops, the ops that free memory are blocked, too.
  std::chrono::nanoseconds patience{0};
  /// How fast the allocator below is, which decides how segments are taken from it; see Pool.
  enum class Below : std::uint8_t {
    slow,  ///< as drivers of devices are
    fast,  ///< as the host's is
  } below = Below::slow;
};

/// In bytes; a small request counts as the rounded size.
struct PoolStats {
  std::size_t in_use = 0;
  std::size_t peak_in_use = 0;
  std::size_t kept = 0;  ///< free, and held for reuse; in_use + kept are taken from the allocator below
  std::uint64_t allocations = 0;
  std::uint64_t reused = 0;  ///< allocations served from kept memory
};

/// Owns its segments. Everything allocated from it must be freed before it ends.
///
/// A segment has at least 2 MiB and is up to a quarter larger than the request. Before allocating one, the pool
/// releases unused segments of half to all of its size to the allocator below. If that allocator is fast, a segment has
/// the size of the request, but at least 1 MiB, and all unused segments up to its size are released: less memory is
/// unused, and segments are allocated more often.
///
/// If a new segment would exceed the limit, or if the allocator below fails, the pool returns all unused memory and
/// tries again. It does not try if the request, the bytes in use and those promised to earlier requests together exceed
/// the limit. A request that finds no memory asks the objects of add_reclaimable() to free some, and then waits for up
/// to PoolOptions::patience. After that, OutOfMemory states the bytes requested, the bytes in use, and the limit or the
/// error of the allocator below.
///
/// Of a device's memory, a pool serves one ordered lane (see Allocator): it gives freed memory to later work of that
/// lane without waiting for it.
///
/// Threads: every member may be called from any thread.
class Pool final : public DividingAllocator {
 public:
  /// Throws MisuseError if there is no allocator.
  explicit Pool(std::shared_ptr<Allocator> below, PoolOptions options = {});
  ~Pool() override;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  std::string_view name() const override { return name_; }
  std::byte* allocate(std::size_t bytes) override WINDROW_EXCLUDES(growing_, mutex_);
  void deallocate(std::byte* start, std::size_t bytes) noexcept override WINDROW_EXCLUDES(mutex_);

  /// Returns unused segments to the allocator below until at most `keep` bytes are kept; then trims that allocator to
  /// the rest.
  void trim(std::size_t keep = 0) noexcept override WINDROW_EXCLUDES(growing_, mutex_);
  /// `live` counts the bytes in use; `cached` counts the kept bytes, and those that the allocator below has cached.
  MemoryUse use() const override WINDROW_EXCLUDES(mutex_);
  PoolStats stats() const WINDROW_EXCLUDES(mutex_);
  void add_reclaimable(std::weak_ptr<Reclaimable> what) override WINDROW_EXCLUDES(mutex_);

  /// The size of the class of a small request.
  static std::size_t rounded(std::size_t bytes);

 private:
  /// Ordered by size, then by address.
  using FreeBlocks = std::set<std::pair<std::size_t, std::byte*>>;
  struct Block {
    std::size_t bytes;
    bool begins_segment;
    bool shared;                      // of a segment that requests up to 2 MiB share
    FreeBlocks::node_type node = {};  // empty while the block is free
  };
  using Blocks = std::map<std::byte*, Block>;
  static constexpr std::size_t class_count = 44;  // of small requests

  /// The bytes that a request takes.
  std::size_t counted(std::size_t bytes) const;
  std::size_t segment_for(std::size_t bytes) const;

  /// Takes a kept piece or a free block for the request; divides a larger block. Null if there is none.
  std::byte* take_kept(std::size_t wanted) WINDROW_REQUIRES(mutex_);
  std::byte* take_free(std::size_t bytes, bool shared) WINDROW_REQUIRES(mutex_);
  std::byte* count_taken(std::byte* start, std::size_t bytes) WINDROW_REQUIRES(mutex_);
  /// How much more the limit admits beside what is in use and promised.
  std::size_t admitted() const WINDROW_REQUIRES(mutex_) { return limit_ - stats_.in_use - promised_; }
  /// Takes memory from the allocator below for the request.
  std::byte* grow(std::size_t wanted) WINDROW_EXCLUDES(growing_, mutex_);
  /// The same for a request that the limit admits, and that is counted as promised until it gets its memory.
  std::byte* grow_by(std::size_t wanted) WINDROW_EXCLUDES(growing_, mutex_);
  /// Asks each reclaimable until one has freed memory; that one comes last the next time.
  bool reclaim() WINDROW_EXCLUDES(growing_, mutex_);
  void add_segment(std::size_t bytes, bool shared) WINDROW_REQUIRES(growing_) WINDROW_EXCLUDES(mutex_);
  [[noreturn]] void refuse(std::size_t bytes, std::size_t in_use, const std::string& why) const;
  std::string over_limit(std::size_t bytes, std::size_t taken) const;

  void put_free(Blocks::iterator block) noexcept WINDROW_REQUIRES(mutex_);
  /// Merges the block, which is free, with the next one if that is free and of the same segment.
  void join_next(Blocks::iterator block) noexcept WINDROW_REQUIRES(mutex_);
  void free_kept_pieces() noexcept WINDROW_EXCLUDES(mutex_);
  /// While more than `keep` bytes are kept, returns unused segments of `from` to `to` bytes to the allocator below.
  void give_back(std::size_t from, std::size_t to, std::size_t keep) noexcept WINDROW_REQUIRES(growing_)
      WINDROW_EXCLUDES(mutex_);
  /// The same for all sizes; if that is not enough, first makes the kept pieces free.
  void give_back_all(std::size_t keep) noexcept WINDROW_REQUIRES(growing_) WINDROW_EXCLUDES(mutex_);
  /// Waits until the number of frees exceeds `frees`, and sets `frees` to it. False if there is nothing to wait for, or
  /// at the deadline.
  bool wait_for_free(std::uint64_t& frees, std::chrono::steady_clock::time_point deadline) WINDROW_EXCLUDES(mutex_);

  const std::size_t limit_;
  const std::chrono::nanoseconds patience_;
  const bool fast_below_;
  const std::string name_;

  // Held while the allocator below is called; mutex_ is not held then. So one segment at a time is taken or returned,
  // and in_use + kept never exceed the limit.
  Mutex growing_;
  mutable Mutex mutex_;  // taken after growing_
  PoolStats stats_ WINDROW_GUARDED_BY(mutex_);
  std::size_t promised_ WINDROW_GUARDED_BY(mutex_) = 0;  // to requests in grow(), so that others leave it to them
  Blocks blocks_ WINDROW_GUARDED_BY(mutex_);
  FreeBlocks free_[2] WINDROW_GUARDED_BY(mutex_);                                       // [1]: of shared segments
  std::array<std::vector<std::byte*>, class_count> pieces_ WINDROW_GUARDED_BY(mutex_);  // kept; as blocks not free
  std::vector<std::weak_ptr<Reclaimable>> reclaimables_ WINDROW_GUARDED_BY(mutex_);
  std::uint64_t frees_ WINDROW_GUARDED_BY(mutex_) = 0;
  int waiting_ WINDROW_GUARDED_BY(mutex_) = 0;  // for freed_
  CondVar freed_;
};

/// The name that Pool had when it alone divided segments. `least` and `small` have no effect.
struct SegmentsOptions {
  std::size_t least = 0, small = 0;
  bool fast_below = false;
  std::size_t limit = unlimited;

  operator PoolOptions() const {
    return {.limit = limit, .below = fast_below ? PoolOptions::Below::fast : PoolOptions::Below::slow};
  }
};
using Segments [[deprecated("use Pool, which divides segments")]] = Pool;
using SegmentsStats [[deprecated("use PoolStats")]] = PoolStats;

}  // namespace windrow
