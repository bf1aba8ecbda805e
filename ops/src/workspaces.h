// Workspaces that outlive their kernels, for captured work, which uses them again.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "windrow/memory/allocator.h"

namespace windrow {

/// Memory for kernels. The allocators must outlive it.
class KeptWorkspaces {
 public:
  KeptWorkspaces() = default;
  KeptWorkspaces(KeptWorkspaces&& other) noexcept : all_(std::exchange(other.all_, {})) {}
  KeptWorkspaces& operator=(KeptWorkspaces&&) = delete;
  ~KeptWorkspaces() { clear(); }

  /// Throws OutOfMemory.
  std::byte* add(Allocator& memory, std::size_t bytes) {
    all_.reserve(all_.size() + 1);
    std::byte* const start = memory.allocate(bytes);
    all_.push_back({&memory, start, bytes});
    return start;
  }
  /// Frees them. The lane of the memory's device orders the next use of the memory after the issued work.
  void clear() noexcept {
    for (const Workspace& one : std::exchange(all_, {})) one.memory->deallocate(one.start, one.bytes);
  }

 private:
  struct Workspace {
    Allocator* memory;
    std::byte* start;
    std::size_t bytes;
  };
  std::vector<Workspace> all_;
};

/// While it exists, kernels on its thread take their workspaces from `kept`, and do not free them.
class KeepWorkspaces {
 public:
  explicit KeepWorkspaces(KeptWorkspaces& kept) : outer_(std::exchange(here_, &kept)) {}
  ~KeepWorkspaces() { here_ = outer_; }
  KeepWorkspaces(const KeepWorkspaces&) = delete;
  KeepWorkspaces& operator=(const KeepWorkspaces&) = delete;

  /// Null if there is none.
  static KeptWorkspaces* here() { return here_; }

 private:
  inline static thread_local constinit KeptWorkspaces* here_ = nullptr;
  KeptWorkspaces* const outer_;
};

}  // namespace windrow
