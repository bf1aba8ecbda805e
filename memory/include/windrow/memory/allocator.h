// Where bytes come from.
//
// A device room implements Allocator for its memory; the host's is here. Allocators know nothing of variables or ops.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "windrow/engine/error.h"

namespace windrow {

/// Every allocation starts at a multiple of this many bytes: a cache line, and the widest vector register.
inline constexpr std::size_t memory_alignment = 64;

/// `bytes` rounded up to the next multiple of memory_alignment. Throws OutOfMemory where that exceeds any size.
std::size_t aligned_size(std::size_t bytes);

/// The bytes are not to be had. The text names the allocator, the bytes asked for, and what is in use where known.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

/// Threads: all members from any thread.
class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual std::string_view name() const = 0;
  /// Whether the host may read and write the bytes.
  virtual bool on_host() const { return true; }
  /// At least one byte's place, even for 0. Throws OutOfMemory.
  virtual std::byte* allocate(std::size_t bytes) = 0;
  /// `bytes` as it was given to allocate().
  virtual void deallocate(std::byte* start, std::size_t bytes) noexcept = 0;
};

/// The host's memory, from the C++ runtime.
std::shared_ptr<Allocator> host_allocator();

/// Returns pages of the C++ runtime's heap that hold nothing any more to the system, where that is known how: behind
/// much that was needed once, such as a corpus while it was read. Threads: any.
void trim_heap() noexcept;

}  // namespace windrow
