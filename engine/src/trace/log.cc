#include "trace/log.h"

#include <algorithm>

namespace windrow {

void TraceLog::begin(const Session& session) noexcept {
  session_ = session;
  chunk_ = nullptr;
  at_ = nullptr;
  room_ = 0;
  count_ = 0;
  MutexLock lock(mutex_);
  left_out_.store(0, std::memory_order_relaxed);
  read_session_ = session.number;
  chunks_.clear();
}

bool TraceLog::add_chunk(std::size_t at_least) noexcept try {
  const auto chunk = std::make_shared<Chunk>(std::max(chunk_bytes, at_least));
  {
    MutexLock lock(mutex_);
    chunks_.push_back(chunk);
  }
  chunk_ = chunk.get();
  at_ = chunk->memory.get();
  room_ = chunk->capacity;
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

TraceLog::Read TraceLog::read(std::uint32_t session) const {
  MutexLock lock(mutex_);
  if (read_session_ != session) return {};
  return {{chunks_.begin(), chunks_.end()}, left_out_.load(std::memory_order_relaxed)};
}

}  // namespace windrow
