#include "record_pool.h"

#include <algorithm>
#include <bit>
#include <new>

namespace windrow {

std::size_t RecordPool::class_of(std::size_t bytes) {
  const std::size_t lines = (bytes + line - 1) / line;
  return lines <= small_classes ? lines - 1 : small_classes + std::bit_width((lines - 1) / small_classes) - 1;
}

std::size_t RecordPool::bytes_of(std::size_t size_class) {
  if (size_class < small_classes) return (size_class + 1) * line;
  return (small_classes * line) << (size_class - small_classes + 1);
}

RecordPool::~RecordPool() = default;

OpRecord* RecordPool::make(Cache& cache, std::size_t accesses, std::size_t body_bytes) {
  const std::size_t size_class = class_of(OpRecord::bytes(accesses, body_bytes));
  if (size_class >= classes) throw std::bad_alloc();
  Cache::Pair& pair = cache.pairs_[size_class];
  if (pair.loaded == nullptr || pair.loaded->count == 0) load(pair, size_class);
  Magazine& magazine = *pair.loaded;
  void* const slot = magazine.slots[--magazine.count];
  if (magazine.count > 1) {
    // The slot after next, which another core wrote last: asked for now, it is here by then.
    const std::byte* ahead = static_cast<std::byte*>(magazine.slots[magazine.count - 2]);
    __builtin_prefetch(ahead, 1);
    if (size_class > 0) __builtin_prefetch(ahead + line, 1);
    if (size_class > 1) __builtin_prefetch(ahead + 2 * line, 1);
  }
  auto* record = ::new (slot) OpRecord;
  record->size_class = static_cast<std::uint8_t>(size_class);
  return record;
}

void RecordPool::free(Cache& cache, OpRecord* record) noexcept {
  record->end_body();
  record->set_id(0);
  const std::size_t size_class = record->size_class;
  Cache::Pair& pair = cache.pairs_[size_class];
  if (pair.loaded == nullptr || pair.loaded->count == Magazine::rounds) {
    if (!unload(pair, size_class)) return;  // kept out of use until the engine ends
  }
  pair.loaded->slots[pair.loaded->count++] = record;
}

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

bool RecordPool::unload(Cache::Pair& pair, std::size_t size_class) noexcept {
  std::swap(pair.loaded, pair.spare);
  if (pair.loaded != nullptr && pair.loaded->count < Magazine::rounds) return true;
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
    ::new (slot) OpRecord;
    magazine.slots[magazine.count++] = slot;
  }
}

}  // namespace windrow
