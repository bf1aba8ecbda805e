// A block of memory that is allocated when first used, and freed by its last holder.
#pragma once

#include <cstddef>
#include <memory>

#include "windrow/engine/mutex.h"
#include "windrow/memory/allocator.h"

namespace windrow {

/// An owner, shared by the buffers cut from it. Threads: all members may be called from any thread.
///
/// Invariant: the memory is allocated only while the block has a holder.
class Block {
 public:
  /// The caller becomes the first holder. Throws MisuseError without an allocator.
  Block(std::shared_ptr<Allocator> memory, std::size_t bytes);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  Allocator& memory() const { return *memory_; }
  const std::shared_ptr<Allocator>& shared_memory() const { return memory_; }
  void hold() WINDROW_EXCLUDES(mutex_);
  /// Removes a holder; the last one frees the memory.
  void let_go() noexcept WINDROW_EXCLUDES(mutex_);
  /// The memory, for holders only; allocates it if necessary. Throws OutOfMemory; a later call tries again.
  std::byte* start() WINDROW_EXCLUDES(mutex_);

 private:
  const std::shared_ptr<Allocator> memory_;
  const std::size_t bytes_;
  Mutex mutex_;  // also held during the allocation, so that there is only one
  std::size_t holders_ WINDROW_GUARDED_BY(mutex_) = 1;
  std::byte* start_ WINDROW_GUARDED_BY(mutex_) = nullptr;  // null: not allocated
};

}  // namespace windrow
