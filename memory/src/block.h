// A block of memory that is taken when first asked for, and goes with the last that holds it.
#pragma once

#include <cstddef>
#include <memory>

#include "windrow/engine/mutex.h"
#include "windrow/memory/allocator.h"

namespace windrow {

/// An owner, shared by the buffers cut from it. Threads: all members from any thread.
///
/// Invariant: memory is there only while somebody holds the block.
class Block {
 public:
  /// Whoever makes it is the first to hold it. Throws MisuseError for no allocator.
  Block(std::shared_ptr<Allocator> memory, std::size_t bytes);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  bool on_host() const { return memory_->on_host(); }
  void hold() WINDROW_EXCLUDES(mutex_);
  /// Frees the memory with the last one that lets go.
  void let_go() noexcept WINDROW_EXCLUDES(mutex_);
  /// For those who hold it. Throws OutOfMemory; a later call tries again.
  std::byte* start() WINDROW_EXCLUDES(mutex_);

 private:
  const std::shared_ptr<Allocator> memory_;
  const std::size_t bytes_;
  Mutex mutex_;  // also held while the memory is taken, so that it is taken once
  std::size_t holders_ WINDROW_GUARDED_BY(mutex_) = 1;
  std::byte* start_ WINDROW_GUARDED_BY(mutex_) = nullptr;  // null: not taken
};

}  // namespace windrow
