// Allocators.
//
// The host's allocator is here; a device room implements Allocator for its own memory. Allocators know nothing of
// variables and ops.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "windrow/engine/error.h"

namespace windrow {

/// Alignment of every allocation, in bytes: a cache line, and the widest vector register.
inline constexpr std::size_t memory_alignment = 64;

/// `bytes` rounded up to a multiple of memory_alignment. Throws OutOfMemory if that is not representable.
std::size_t aligned_size(std::size_t bytes);

/// Thrown if memory cannot be allocated. The text names the allocator, the bytes requested and, where known, the bytes
/// in use.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

/// Interface of all allocators. Threads: every member may be called from any thread.
class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual std::string_view name() const = 0;
  /// Whether the host can read and write the memory.
  virtual bool on_host() const { return true; }
  /// Allocates `bytes` bytes, aligned to memory_alignment; a valid place even for 0 bytes. Throws OutOfMemory.
  virtual std::byte* allocate(std::size_t bytes) = 0;
  /// Frees an allocation; `bytes` must be the value that was passed to allocate().
  virtual void deallocate(std::byte* start, std::size_t bytes) noexcept = 0;
};

/// The host's memory, from the C++ runtime's heap.
std::shared_ptr<Allocator> host_allocator();

/// Returns free pages of the C++ runtime's heap to the system, where supported: after a phase that needed much memory
/// once, such as reading a corpus. May be called from any thread.
void trim_heap() noexcept;

}  // namespace windrow
