#include "block.h"

#include <utility>

namespace windrow {

Block::Block(std::shared_ptr<Allocator> memory, std::size_t bytes) : memory_(std::move(memory)), bytes_(bytes) {
  if (memory_ == nullptr) throw MisuseError("buffer: no allocator; expected one");
}

Block::~Block() {
  if (std::byte* start = start_.load()) memory_->deallocate(start, bytes_);
}

std::byte* Block::start() {
  if (std::byte* start = start_.load()) return start;
  MutexLock lock(taking_);
  if (start_.load() == nullptr) start_.store(memory_->allocate(bytes_));
  return start_.load();
}

}  // namespace windrow
