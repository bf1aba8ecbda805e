#include "execute/scratch.h"

namespace windrow {

float* Scratch::of_this_thread() {
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

void Scratch::give_back() noexcept {
  std::vector<Area> areas;
  {
    MutexLock lock(mutex_);
    areas.swap(areas_);
  }
  for (const Area& area : areas) memory_->deallocate(area.start, bytes_);
}

}  // namespace windrow
