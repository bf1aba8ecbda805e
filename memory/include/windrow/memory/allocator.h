// Allocators: the memory of the host or of a device, and the copies between the two.
//
// The host's allocator is here; a device room implements Allocator for its own memory. Allocators know nothing of
// variables and ops. buffer.h says when their members are called.
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <cstddef>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

#include "windrow/engine/error.h"
#include "windrow/engine/lane.h"

namespace windrow {

/// The least alignment of an allocation, in bytes: a cache line, and the widest vector register.
inline constexpr std::size_t memory_alignment = 64;

/// `bytes` rounded up to a multiple of `alignment`, a power of two. Throws OutOfMemory if that is not representable.
std::size_t aligned_size(std::size_t bytes, std::size_t alignment = memory_alignment);

/// Thrown if memory cannot be allocated. The text names the allocator, the bytes requested and, where known, the bytes
/// in use.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

class Allocator;

/// Means no limit of bytes.
inline constexpr std::size_t unlimited = std::numeric_limits<std::size_t>::max();

/// The bytes that an allocator has given away and those that it holds. A value.
struct MemoryUse {
  std::size_t live = 0;            ///< allocated, and not freed
  std::size_t peak_live = 0;       ///< the most that were live at one moment
  std::size_t cached = 0;          ///< free, and held for later allocations
  std::size_t largest_cached = 0;  ///< of these, the largest contiguous piece
  std::size_t limit = unlimited;   ///< of all of them

  /// The share of the cached bytes outside the largest piece: 0 if one allocation could use all of them.
  double fragmentation() const {
    return cached == 0 ? 0 : 1 - static_cast<double>(largest_cached) / static_cast<double>(cached);
  }
};

/// The shape of a copy: `rows` rows of `width` bytes. Row i begins i strides, in bytes, after the first row.
struct CopyShape {
  std::size_t rows, width;
  std::size_t to_stride, from_stride;

  /// `bytes` contiguous bytes.
  static CopyShape contiguous(std::size_t bytes) { return {1, bytes, bytes, bytes}; }
};

/// Holds memory that it can do without, such as copies of values.
class Reclaimable {
 public:
  virtual ~Reclaimable() = default;
  /// Frees some of the allocator's memory, if it can do so at once. Returns whether it has. Called inside the op that
  /// allocates, or where a thread outside ops does; must neither wait nor allocate from the allocator.
  virtual bool reclaim(const Allocator& memory) noexcept = 0;
};

/// Interface of all allocators.
///
/// Memory that the host cannot access belongs to a device. One ordered lane of the device orders its use: ops of this
/// lane call allocate() and deallocate() while they issue work. An op may deallocate memory that queued work of the
/// lane still uses. So the allocator may give the memory to later work of the same lane at once, but must wait for the
/// lane before it gives the memory to anyone else. deallocate() is also called outside such ops: when a pool returns
/// what it keeps, and after the lane was removed or the engine has ended (all work of the lane is done then).
///
/// Threads: every member may be called from any thread.
class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual std::string_view name() const = 0;
  /// Whether the host can read and write the memory.
  virtual bool on_host() const { return true; }
  /// The alignment of each allocation, in bytes: a power of two, at least memory_alignment. If it is a multiple of the
  /// system's pages, no allocation shares its last page with other data.
  virtual std::size_t alignment() const { return memory_alignment; }
  /// Allocates `bytes` bytes; a valid place even for 0 bytes. Throws OutOfMemory.
  virtual std::byte* allocate(std::size_t bytes) = 0;
  /// Frees an allocation; `bytes` must be the value that was passed to allocate().
  virtual void deallocate(std::byte* start, std::size_t bytes) noexcept = 0;

  // Copies between this memory and the host's, for ops. On a device they issue work on `lane`, the op's lane, and
  // return. Until the op's point is reached, the host's memory must stay valid, and its bytes unchanged if they are the
  // source. The implementations of this class are for memory that the host can access: `lane` is ignored, and the work
  // is done when they return. Those of a device throw Error if the work cannot be issued, for a null lane, and for a
  // lane that is not the device's.
  virtual void upload(Lane* lane, std::byte* to, const std::byte* from_host, const CopyShape& shape);
  virtual void download(Lane* lane, std::byte* to_host, const std::byte* from, const CopyShape& shape);
  /// Sets bytes to zero.
  virtual void clear(Lane* lane, std::byte* start, std::size_t bytes);
  /// The host's memory from which, and to which, copies are fastest: pinned memory for a GPU.
  virtual std::shared_ptr<Allocator> staging();
  /// Returns at least `bytes` bytes for work on an ordered lane other than the one that orders this memory. An op of
  /// `lane` calls it, and issues the work that uses the bytes before the next such call for the lane. Returns null for
  /// the lane that orders this memory, and on the host: use allocate() there. Throws OutOfMemory, and Error for a lane
  /// that is not the device's.
  virtual std::byte* workspace_beside(Lane* lane [[maybe_unused]], std::size_t bytes [[maybe_unused]]) {
    return nullptr;
  }

  /// Zeros, unless the allocator counts.
  virtual MemoryUse use() const { return {}; }
  /// Returns cached memory until at most `keep` bytes are cached, or until the rest is in pieces that are partly live.
  virtual void trim(std::size_t keep) noexcept { static_cast<void>(keep); }
  /// From now on, an allocation that finds no memory asks `what` to free some before it fails. The reclaimable that was
  /// asked or added least recently comes first. Only a Pool implements this; other allocators ignore it.
  virtual void add_reclaimable(std::weak_ptr<Reclaimable> what) { static_cast<void>(what); }
  /// Whether others use the memory too, such as the owner of an array that a buffer wraps. A buffer that ends leaves
  /// its bytes as they are then; otherwise it may overwrite them, so that readers of freed bytes are noticed.
  virtual bool borrowed() const { return false; }
};

/// Base of allocators that divide the memory of another one, which copies.
class DividingAllocator : public Allocator {
 public:
  std::string_view name() const override { return below_->name(); }
  bool on_host() const override { return below_->on_host(); }
  std::size_t alignment() const override { return below_->alignment(); }
  void upload(Lane* lane, std::byte* to, const std::byte* from_host, const CopyShape& shape) override;
  void download(Lane* lane, std::byte* to_host, const std::byte* from, const CopyShape& shape) override;
  void clear(Lane* lane, std::byte* start, std::size_t bytes) override;
  std::shared_ptr<Allocator> staging() override { return below_->staging(); }
  std::byte* workspace_beside(Lane* lane, std::size_t bytes) override { return below_->workspace_beside(lane, bytes); }
  /// The other allocator.
  const Allocator& below() const { return *below_; }

 protected:
  /// Throws MisuseError if there is no allocator below; `kind`, such as "pool", begins its text.
  DividingAllocator(std::shared_ptr<Allocator> below, std::string_view kind);

  const std::shared_ptr<Allocator> below_;
};

/// The host's memory. Small pieces come from the C++ runtime's heap. Large pieces come from the system, and return to
/// it when they are freed.
std::shared_ptr<Allocator> host_allocator();

/// The same in whole pages, for EngineOptions::check, which detects undeclared reads only of whole pages. host_device()
/// uses it if the engine checks; give it to your own buffers and pools then. Each allocation is a system call and takes
/// a page at least, so it is not for other uses. While an op runs, a system call outside the op on bytes of this
/// memory, such as writing them to a file, may fail with EFAULT.
std::shared_ptr<Allocator> page_allocator();

/// Returns free pages of the C++ runtime's heap to the system, where supported: after a phase that needed much memory
/// once, such as reading a corpus. May be called from any thread.
void trim_heap() noexcept;

}  // namespace windrow
