// A pool: memory that was given back is kept, by size, for who asks next.
//
// Sizes are rounded up to multiples of memory_alignment and then to classes, four to each power of two, so that at most
// a fifth of a piece more stands empty. Large pieces, of a mebibyte or more, also serve requests for down to a quarter
// of them, and go where one of up to twice as much must be taken: so minibatches of any sizes soon share a few pieces,
// each as large as the largest needs, and the last of an epoch or one that asks for no gradients is served by them too.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <unordered_map>
#include <vector>

#include "windrow/engine/mutex.h"
#include "windrow/memory/allocator.h"

namespace windrow {

struct PoolOptions {
  /// Bytes that may be taken from the allocator below, kept ones included.
  std::size_t limit = std::numeric_limits<std::size_t>::max();
};

/// Bytes are those of pieces: as rounded, or more where a large piece was reused.
struct PoolStats {
  std::size_t in_use = 0;
  std::size_t peak_in_use = 0;
  std::size_t kept = 0;  ///< given back, and held for reuse
  std::uint64_t allocations = 0;
  std::uint64_t reused = 0;  ///< allocations served from what was kept
};

/// An owner of what it keeps. Everything allocated from it must be given back before it ends.
///
/// When the limit or the memory below is reached it returns all it keeps, tries once more, and then throws OutOfMemory
/// with the bytes asked for, in use, and allowed.
/// Threads: all members from any thread.
class Pool final : public Allocator {
 public:
  /// Throws MisuseError for no allocator.
  explicit Pool(std::shared_ptr<Allocator> below, PoolOptions options = {});
  ~Pool() override;
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  std::string_view name() const override { return name_; }
  bool on_host() const override { return below_->on_host(); }
  std::byte* allocate(std::size_t bytes) override;
  void deallocate(std::byte* start, std::size_t bytes) noexcept override;

  /// Returns all that is kept to the allocator below.
  void trim() noexcept;
  PoolStats stats() const;

  /// The bytes that a request for `bytes` takes, unless a larger piece is there.
  static std::size_t rounded(std::size_t bytes);

 private:
  struct Piece {
    std::byte* start;  ///< null for none
    std::size_t size_class;
  };
  using Kept = std::array<std::vector<std::byte*>, 256>;  // by size class

  std::byte* reuse_or_reserve(std::size_t bytes) WINDROW_EXCLUDES(mutex_);
  Piece take_kept(std::size_t size_class) WINDROW_REQUIRES(mutex_);
  /// A kept piece of half the size or more, but less.
  Piece take_outgrown(std::size_t size_class) WINDROW_REQUIRES(mutex_);
  void give_back(Piece piece) WINDROW_EXCLUDES(mutex_);
  std::byte* take_from_below(std::size_t bytes);
  void count_allocation() WINDROW_REQUIRES(mutex_);
  OutOfMemory refusal(std::size_t bytes, std::string_view reason) const WINDROW_REQUIRES(mutex_);

  // Immutable after construction.
  const std::shared_ptr<Allocator> below_;
  const std::size_t limit_;
  const std::string name_;

  // Held while pieces go back to the allocator below: who waits for it may count on them being gone.
  Mutex trimming_;

  // The allocator below is never called under mutex_. Bytes count as in use before they are taken from below, and as
  // kept until they are back there; they are taken only once in_use + kept was within the limit with them.
  mutable Mutex mutex_;
  PoolStats stats_ WINDROW_GUARDED_BY(mutex_);
  Kept kept_ WINDROW_GUARDED_BY(mutex_);
  /// Size classes of pieces in use that are larger than what was asked for.
  std::unordered_map<std::byte*, std::size_t> larger_ WINDROW_GUARDED_BY(mutex_);
};

}  // namespace windrow
