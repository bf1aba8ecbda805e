// Segments: an allocator that takes large pieces from the allocator below, and divides them.
//
// A request gets the smallest free block that is large enough, and what remains of that block stays free. A block that
// is freed becomes one with its free neighbours. So requests of varying sizes, such as those of minibatches, use the
// same memory. It takes some hundred nanoseconds, which is little where an allocation of the driver takes far more, and
// waits for the device. Put a Pool with PoolOptions::largest_piece above it for small pieces.
#pragma once
#include "windrow/engine/requirements.h"

#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "windrow/engine/mutex.h"
#include "windrow/memory/allocator.h"

namespace windrow {

struct SegmentsOptions {
  /// The least size of a segment, in bytes. If the allocator below has less, a segment is as large as the request.
  std::size_t least = std::size_t{2} << 20;
  /// Requests for up to so many bytes have segments of their own while there is memory: small pieces often live long,
  /// and would keep the rest of a large segment from serving large requests.
  std::size_t small = 0;
  /// Whether the allocator below is fast, as the host's is. Then segments are as large as the requests, and all unused
  /// ones that are not larger go back before another is taken: less is unused, and segments are taken more often.
  bool fast_below = false;
  /// The most bytes taken from the allocator below.
  std::size_t limit = unlimited;
};

struct SegmentsStats {
  std::size_t in_use = 0;  ///< bytes of blocks
  std::size_t peak_in_use = 0;
  std::size_t free = 0;          ///< bytes that can be given again
  std::size_t largest_free = 0;  ///< bytes of the largest free block
  std::size_t segments = 0;
  std::uint64_t taken = 0;  ///< segments taken from the allocator below so far
};

/// Owns its segments. Everything allocated from it must be freed before it ends.
///
/// A segment is a quarter larger than the request at most, and at least SegmentsOptions::least. Before another one is
/// taken, unused segments of at least half its size go back to the allocator below, since they are outgrown. With
/// SegmentsOptions::fast_below, it is as large as the request, and all smaller unused ones go back. If the allocator
/// below fails or the limit is reached, all unused segments go back; if the request still fails, a free block of the
/// other kind of segment serves (SegmentsOptions::small), or its OutOfMemory is thrown.
///
/// Of a device's memory, it serves one ordered lane, as a Pool does. Threads: every member may be called from any
/// thread.
class Segments final : public DividingAllocator {
 public:
  /// Throws MisuseError if there is no allocator.
  explicit Segments(std::shared_ptr<Allocator> below, SegmentsOptions options = {});
  ~Segments() override;
  Segments(const Segments&) = delete;
  Segments& operator=(const Segments&) = delete;

  std::byte* allocate(std::size_t bytes) override WINDROW_EXCLUDES(growing_, mutex_);
  void deallocate(std::byte* start, std::size_t bytes) noexcept override WINDROW_EXCLUDES(mutex_);

  /// Returns unused segments to the allocator below, until at most `keep` bytes are free.
  void trim(std::size_t keep = 0) noexcept override WINDROW_EXCLUDES(growing_, mutex_);
  MemoryUse use() const override WINDROW_EXCLUDES(mutex_);
  SegmentsStats stats() const WINDROW_EXCLUDES(mutex_);

 private:
  /// By size, then by address.
  using FreeBlocks = std::set<std::pair<std::size_t, std::byte*>>;
  struct Block {
    std::size_t bytes;
    bool begins_segment;
    bool small;                       // of a segment for small requests
    FreeBlocks::node_type node = {};  // empty while the block is free
  };
  using Blocks = std::map<std::byte*, Block>;

  bool is_small(std::size_t bytes) const { return bytes <= options_.small; }
  FreeBlocks& free_like(const Block& block) WINDROW_REQUIRES(mutex_) { return free_[block.small ? 1 : 0]; }
  std::byte* take_free(std::size_t bytes, bool small) WINDROW_REQUIRES(mutex_);
  void free(Blocks::iterator block) noexcept WINDROW_REQUIRES(mutex_);
  /// Makes the block, which is free, one with the next one if that is free and of the same segment.
  void join_next(Blocks::iterator block) noexcept WINDROW_REQUIRES(mutex_);
  bool is_whole_segment(Blocks::const_iterator block) const WINDROW_REQUIRES(mutex_);
  void add_segment(std::size_t bytes, bool small) WINDROW_REQUIRES(growing_) WINDROW_EXCLUDES(mutex_);
  /// Returns unused segments of `from` to `to` bytes while more than `keep` bytes are free.
  void give_back(std::size_t from, std::size_t to, std::size_t keep = 0) noexcept WINDROW_REQUIRES(growing_)
      WINDROW_EXCLUDES(mutex_);
  void require_within_limit(std::size_t more) const WINDROW_EXCLUDES(mutex_);

  const SegmentsOptions options_;
  Mutex growing_;        // held while the allocator below is called
  mutable Mutex mutex_;  // taken after growing_
  Blocks blocks_ WINDROW_GUARDED_BY(mutex_);
  FreeBlocks free_[2] WINDROW_GUARDED_BY(mutex_);  // [1]: of segments for small requests
  SegmentsStats stats_ WINDROW_GUARDED_BY(mutex_);
};

}  // namespace windrow
