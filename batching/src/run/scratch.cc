#include "run/scratch.h"

namespace windrow {

float* Scratch::of_this_thread() {
  if (bytes_ == 0) return nullptr;
  const std::thread::id thread = std::this_thread::get_id();
  {
    MutexLock lock(mutex_);
    for (const Piece& piece : pieces_) {
      if (piece.thread == thread) return reinterpret_cast<float*>(piece.start);
    }
  }
  std::byte* const start = memory_->allocate(bytes_);  // foreign code, so not under the lock
  try {
    MutexLock lock(mutex_);
    pieces_.push_back({thread, start});
  } catch (...) {
    memory_->deallocate(start, bytes_);
    throw;
  }
  return reinterpret_cast<float*>(start);
}

void Scratch::give_back() noexcept {
  std::vector<Piece> pieces;
  {
    MutexLock lock(mutex_);
    pieces.swap(pieces_);
  }
  for (const Piece& piece : pieces) memory_->deallocate(piece.start, bytes_);
}

}  // namespace windrow
