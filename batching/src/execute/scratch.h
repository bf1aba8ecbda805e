// Memory for the tiles of a minibatch: an area for each thread that runs its ops.
#pragma once

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "windrow/engine/internal/mutex.h"
#include "windrow/memory/allocator.h"
#include "windrow/ops/internal/matrix.h"

namespace windrow {

/// An owner. Areas come from the device's memory, so they are counted and limited there. A thread runs one op of a
/// minibatch at a time and keeps its area from op to op, so the area stays in its cache.
///
/// Threads: any.
class Scratch {
 public:
  Scratch(std::shared_ptr<Allocator> memory, Index elements)
      : memory_(std::move(memory)), bytes_(static_cast<std::size_t>(elements) * sizeof(float)) {}
  ~Scratch() { give_back(); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  /// The calling thread's area, the same until give_back(); null if areas have no elements. Throws OutOfMemory.
  float* of_this_thread() WINDROW_EXCLUDES(mutex_);
  /// Called while no op uses an area.
  void give_back() noexcept WINDROW_EXCLUDES(mutex_);

 private:
  struct Area {
    std::thread::id thread;
    std::byte* start;
  };

  const std::shared_ptr<Allocator> memory_;
  const std::size_t bytes_;  // of an area

  Mutex mutex_;
  std::vector<Area> areas_ WINDROW_GUARDED_BY(mutex_);  // at most one for each thread, added by that thread
};

inline float* Scratch::of_this_thread() {
  if (bytes_ == 0) return nullptr;
  const std::thread::id thread = std::this_thread::get_id();
  {
    MutexLock lock(mutex_);
    for (const Area& area : areas_) {
      if (area.thread == thread) return reinterpret_cast<float*>(area.start);
    }
  }
  std::byte* const start = memory_->allocate(bytes_);  // may be user code, so not under the lock
  try {
    MutexLock lock(mutex_);
    areas_.push_back({thread, start});
  } catch (...) {
    memory_->deallocate(start, bytes_);
    throw;
  }
  return reinterpret_cast<float*>(start);
}

inline void Scratch::give_back() noexcept {
  std::vector<Area> areas;
  {
    MutexLock lock(mutex_);
    areas.swap(areas_);
  }
  for (const Area& area : areas) memory_->deallocate(area.start, bytes_);
}

}  // namespace windrow
