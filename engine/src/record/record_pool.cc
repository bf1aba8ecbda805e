#include "record/record_pool.h"

#include <utility>

namespace windrow {

std::size_t RecordPool::bytes_of(std::size_t size_class) {
  if (size_class < small_classes) return (size_class + 1) * line;
  return (small_classes * line) << (size_class - small_classes + 1);
}

RecordPool::~RecordPool() = default;

void RecordPool::load(Cache::Pair& pair, std::size_t size_class) {
  std::swap(pair.loaded, pair.spare);
  if (pair.loaded != nullptr && pair.loaded->count > 0) return;
  MutexLock lock(mutex_);
  Depot& depot = depots_[size_class];
  if (depot.full != nullptr) {
    if (pair.loaded != nullptr) {
      pair.loaded->next = depot.empty;
      depot.empty = pair.loaded;
    }
    pair.loaded = depot.full;
    depot.full = depot.full->next;
    return;
  }
  if (pair.loaded == nullptr) pair.loaded = new_magazine();
  add_slab(*pair.loaded, size_class);
}

void RecordPool::free_slowly(Cache::Pair& pair, OpRecord* record) noexcept {
  record->end_body();
  record->set_id(0);
  if (!has_room(pair) && !unload(pair, record->size_class)) return;  // the slot stays unused until the engine ends
  pair.loaded->slots[pair.loaded->count++] = record;
}

bool RecordPool::unload(Cache::Pair& pair, std::size_t size_class) noexcept {
  std::swap(pair.loaded, pair.spare);
  if (has_room(pair)) return true;
  MutexLock lock(mutex_);
  Depot& depot = depots_[size_class];
  Magazine* empty = depot.empty;
  if (empty != nullptr) {
    depot.empty = empty->next;
  } else {
    try {
      empty = new_magazine();
    } catch (const std::bad_alloc&) {
      return false;
    }
  }
  if (pair.loaded != nullptr) {
    pair.loaded->next = depot.full;
    depot.full = pair.loaded;
  }
  pair.loaded = empty;
  return true;
}

RecordPool::Magazine* RecordPool::new_magazine() {
  magazines_.push_back(std::make_unique<Magazine>());
  return magazines_.back().get();
}

void RecordPool::add_slab(Magazine& magazine, std::size_t size_class) {
  const std::size_t slot_bytes = bytes_of(size_class);
  const std::size_t slots = size_class < small_classes ? Magazine::rounds : 1;
  const std::size_t bytes = slots * slot_bytes;
  std::unique_ptr<std::byte, Free> memory(static_cast<std::byte*>(::operator new(bytes, std::align_val_t(line))));
  std::byte* const first = memory.get();
  slabs_.push_back({std::move(memory), bytes, slot_bytes});
  for (std::size_t i = slots; i-- > 0;) {
    std::byte* const slot = first + i * slot_bytes;
    ::new (slot) OpRecord(static_cast<std::uint8_t>(size_class));
    magazine.slots[magazine.count++] = slot;
  }
}

}  // namespace windrow
