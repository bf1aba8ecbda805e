// A pool: an allocator that keeps freed memory for reuse, by size.
//
// Sizes are rounded up to multiples of memory_alignment and then to size classes, four per power of two, so at most a
// fifth of a piece is unused. A large piece (1 MiB or more) also serves requests down to a quarter of its size. When a
// large piece must be allocated, a kept piece of at least half its size is returned to the allocator below. So
// minibatches of varying sizes soon share a few pieces, each as large as the largest minibatch needs; smaller
// minibatches, such as the last of an epoch or one without gradients, are served from them too.
#pragma once
#include "windrow/engine/requirements.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <unordered_map>
#include <vector>

#include "windrow/engine/mutex.h"
#include "windrow/memory/allocator.h"

namespace windrow {

struct PoolOptions {
  /// The most bytes taken from the allocator below, including those kept for reuse.
  std::size_t limit = std::numeric_limits<std::size_t>::max();
  /// The size of the largest piece, which is rounded up. Requests for more bytes are passed to the allocator below,
  /// exactly, and nothing of them is kept: for an allocator such as Segments.
  std::size_t largest_piece = std::numeric_limits<std::size_t>::max();
  /// How long an allocation that would fail waits for other threads to free memory; nanoseconds::max() means without a
  /// limit. It blocks its thread, and on one that runs ops the frees themselves, if there is no other.
  std::chrono::nanoseconds patience{0};
};

/// Bytes count whole pieces: the rounded size, or more if a larger piece was reused.
struct PoolStats {
  std::size_t in_use = 0;
  std::size_t peak_in_use = 0;
  std::size_t kept = 0;  ///< freed, and held for reuse
  std::uint64_t allocations = 0;
  std::uint64_t reused = 0;  ///< allocations served from kept pieces
};

/// Owns the memory that it keeps. Everything allocated from it must be freed before it ends.
///
/// If kept memory would make a request exceed the limit, or if the allocator below fails, the pool first returns all
/// kept memory. If the request still fails, it throws OutOfMemory with the bytes requested, the bytes in use, and the
/// limit or the error of the allocator below. With PoolOptions::patience it first waits for memory to be freed.
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
  std::byte* allocate(std::size_t bytes) override;
  void deallocate(std::byte* start, std::size_t bytes) noexcept override;

  /// Returns kept pieces to the allocator below, large ones first, until at most `keep` bytes are kept; then trims
  /// that allocator to the rest.
  void trim(std::size_t keep = 0) noexcept override;
  /// Bytes in use are live; cached are what is kept, and what the allocator below has cached.
  MemoryUse use() const override;
  PoolStats stats() const;

  /// The size of the piece that a request for `bytes` takes, unless a larger piece is reused.
  static std::size_t rounded(std::size_t bytes);

 private:
  struct Piece {
    std::byte* start;  ///< null for no piece
    std::size_t size_class;
  };
  static constexpr std::size_t kept_classes = 256;  // more than any size needs
  using PiecesByClass = std::array<std::vector<std::byte*>, kept_classes>;

  /// The bytes that a request counts as, and takes from the allocator below.
  std::size_t counted(std::size_t bytes) const;
  bool passes_on(std::size_t bytes) const { return bytes > largest_piece_; }
  std::byte* allocate_now(std::size_t wanted) WINDROW_EXCLUDES(mutex_);
  /// Waits until memory was freed after `frees` frees. Returns false if there is none to wait for, or not in time.
  bool wait_for_free(std::uint64_t frees, std::chrono::steady_clock::time_point deadline) WINDROW_EXCLUDES(mutex_);
  void count_free() WINDROW_REQUIRES(mutex_);
  /// Returns kept pieces, large ones first, until at most `keep` bytes are kept.
  void give_back_kept(std::size_t keep) noexcept WINDROW_EXCLUDES(trimming_, mutex_);
  std::byte* reuse_or_reserve(std::size_t bytes) WINDROW_EXCLUDES(mutex_);
  Piece take_kept(std::size_t size_class) WINDROW_REQUIRES(mutex_);
  /// A kept piece smaller than this class, of at least about half its size.
  Piece take_outgrown(std::size_t size_class) WINDROW_REQUIRES(mutex_);
  void give_back(Piece piece) WINDROW_EXCLUDES(mutex_);
  std::byte* take_from_below(std::size_t bytes);
  void count_allocation() WINDROW_REQUIRES(mutex_);
  OutOfMemory refusal(std::size_t bytes, std::string_view reason) const WINDROW_REQUIRES(mutex_);

  // Immutable after construction.
  const std::size_t limit_, largest_piece_;
  const std::chrono::nanoseconds patience_;
  const std::string name_;

  // Held while pieces go back to the allocator below: a thread that has acquired it knows that earlier trims are
  // complete.
  Mutex trimming_;

  // The allocator below is never called under mutex_. Bytes are counted as in use before they are taken from below, and
  // as kept until they have been returned there.
  // Invariants: 1. in_use is within the limit. 2. Bytes are taken only after in_use + kept, including them, was within
  // the limit. A kept piece is reused only if in_use stays within it: the sum may exceed it while pieces go back.
  mutable Mutex mutex_;
  PoolStats stats_ WINDROW_GUARDED_BY(mutex_);
  PiecesByClass kept_ WINDROW_GUARDED_BY(mutex_);
  /// Size classes of pieces in use that are larger than requested.
  std::unordered_map<std::byte*, std::size_t> larger_ WINDROW_GUARDED_BY(mutex_);
  std::uint64_t frees_ WINDROW_GUARDED_BY(mutex_) = 0;
  int waiting_ WINDROW_GUARDED_BY(mutex_) = 0;  // for freed_
  CondVar freed_;
};

}  // namespace windrow
