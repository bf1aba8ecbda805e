// A block of memory that is taken when first asked for.
#pragma once

#include <atomic>
#include <memory>

#include "windrow/engine/mutex.h"
#include "windrow/memory/allocator.h"

namespace windrow {

/// An owner, shared by the buffers cut from it. Threads: start() from any thread.
class Block {
 public:
  /// Throws MisuseError for no allocator.
  Block(std::shared_ptr<Allocator> memory, std::size_t bytes);
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  bool on_host() const { return memory_->on_host(); }
  /// Throws OutOfMemory; a later call tries again.
  std::byte* start();

 private:
  const std::shared_ptr<Allocator> memory_;
  const std::size_t bytes_;
  Mutex taking_;                            // held by the one who takes the memory
  std::atomic<std::byte*> start_{nullptr};  // written once under taking_, read by all
};

}  // namespace windrow
