#include "block.h"

#include <utility>

namespace windrow {

Block::Block(std::shared_ptr<Allocator> memory, std::size_t bytes) : memory_(std::move(memory)), bytes_(bytes) {
  if (memory_ == nullptr) throw MisuseError("buffer: no allocator; expected one");
}

Block::~Block() {
  if (start_ != nullptr) memory_->deallocate(start_, bytes_);  // if the constructor of a buffer threw
}

void Block::hold() {
  MutexLock lock(mutex_);
  ++holders_;
}

void Block::let_go() noexcept {
  MutexLock lock(mutex_);
  if (--holders_ > 0) return;
  std::byte* const start = std::exchange(start_, nullptr);
  lock.unlock();
  if (start != nullptr) memory_->deallocate(start, bytes_);
}

std::byte* Block::start() {
  MutexLock lock(mutex_);
  if (start_ == nullptr) start_ = memory_->allocate(bytes_);
  return start_;
}

}  // namespace windrow
