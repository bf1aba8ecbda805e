// The memory of op records: an engine's pool, and a cache for each thread that pushes or finishes ops.
//
// One thread makes a record and another frees it. So the caches exchange full and empty magazines through the pool
// (Bonwick and Adams 2001), which takes one lock for thirty records. Memory is cut into slots of a few sizes and kept
// until the engine ends. So a slot always holds a record or the remains of one, and a search for all unfinished ops may
// walk over the slots.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <memory>
#include <new>
#include <vector>

#include "process/fork.h"
#include "record/op.h"
#include "windrow/engine/internal/mutex.h"

namespace windrow {

class RecordPool {
 public:
  /// Sizes are multiples of a cache line up to eight of them, then powers of two.
  static constexpr std::size_t line = 64, small_classes = 8, classes = 32;

  struct Magazine {
    static constexpr std::uint32_t rounds = 30;
    Magazine* next = nullptr;
    std::uint32_t count = 0;
    std::array<void*, rounds> slots;
  };

  /// A thread's cache. Used by one thread at a time, and only with its own pool.
  class Cache {
   public:
    struct Pair {
      Magazine* loaded = nullptr;
      Magazine* spare = nullptr;
    };

   private:
    friend RecordPool;
    std::array<Pair, classes> pairs_;
  };

  ~RecordPool();

  /// A record without a body and number, with room for that many accesses and a body of that size. Throws
  /// std::bad_alloc.
  [[gnu::always_inline]] OpRecord* make(Cache& cache, std::size_t accesses, std::size_t body_bytes) {
    const std::size_t size_class = class_of(OpRecord::bytes(accesses, body_bytes));
    Cache::Pair& pair = pair_of(cache, size_class);
    if (pair.loaded == nullptr || pair.loaded->count == 0) [[unlikely]]
      load(pair, size_class);
    Magazine& magazine = *pair.loaded;
    void* const slot = magazine.slots[--magazine.count];
    // Prefetches the slot after the next one, which another core wrote last.
    if (magazine.count > 1) prefetch(magazine.slots[magazine.count - 2], size_class);
    return static_cast<OpRecord*>(slot);
  }
  /// Destroys the record's body, and makes its memory available to other records.
  [[gnu::noinline]] void free(Cache& cache, OpRecord* record) noexcept {
    Cache::Pair& pair = cache.pairs_[record->size_class];
    if (record->body() != OpRecord::Body::none || !has_room(pair)) [[unlikely]]
      return free_slowly(pair, record);
    record->set_id(0);
    pair.loaded->slots[pair.loaded->count++] = record;
  }

  /// Calls f(record) for each slot. No record may be made meanwhile. Records may be freed: the data that was fixed when
  /// they joined can still be read.
  template <class F>
  void for_each(F&& f) WINDROW_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    for (const Slab& slab : slabs_) {
      for (std::size_t at = 0; at < slab.bytes; at += slab.slot_bytes) {
        f(*reinterpret_cast<OpRecord*>(slab.memory.get() + at));
      }
    }
  }

  void each_mutex(EachMutex f) { f(mutex_); }  // see fork.h

 private:
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, std::align_val_t(line)); }
  };
  struct Slab {
    std::unique_ptr<std::byte, Free> memory;
    std::size_t bytes, slot_bytes;
  };
  struct Depot {
    Magazine* full = nullptr;
    Magazine* empty = nullptr;
  };

  static std::size_t class_of(std::size_t bytes) {
    const std::size_t more_lines = (bytes - 1) / line;  // lines beyond the first
    if (more_lines < small_classes) [[likely]]
      return more_lines;
    return small_classes + std::bit_width(more_lines / small_classes) - 1;
  }
  static Cache::Pair& pair_of(Cache& cache, std::size_t size_class) {
    if (size_class >= classes) [[unlikely]]
      throw std::bad_alloc();
    return cache.pairs_[size_class];
  }
  static void prefetch(const void* slot, std::size_t size_class) {
    const auto* first = static_cast<const std::byte*>(slot);
    StdAtomics::prefetch_to_write(first);
    if (size_class > 0) StdAtomics::prefetch_to_write(first + line);
    if (size_class > 1) StdAtomics::prefetch_to_write(first + 2 * line);
  }
  static bool has_room(const Cache::Pair& pair) {
    return pair.loaded != nullptr && pair.loaded->count < Magazine::rounds;
  }
  [[gnu::noinline]] void free_slowly(Cache::Pair& pair, OpRecord* record) noexcept;
  static std::size_t bytes_of(std::size_t size_class);
  /// Puts a magazine that holds at least one slot into `pair.loaded`.
  void load(Cache::Pair& pair, std::size_t size_class) WINDROW_EXCLUDES(mutex_);
  /// Puts a magazine with room into `pair.loaded`. Returns false if there is no memory for one.
  bool unload(Cache::Pair& pair, std::size_t size_class) noexcept WINDROW_EXCLUDES(mutex_);
  Magazine* new_magazine() WINDROW_REQUIRES(mutex_);
  void add_slab(Magazine& magazine, std::size_t size_class) WINDROW_REQUIRES(mutex_);

  Mutex mutex_;
  std::array<Depot, classes> depots_ WINDROW_GUARDED_BY(mutex_);
  std::vector<Slab> slabs_ WINDROW_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Magazine>> magazines_ WINDROW_GUARDED_BY(mutex_);
};

}  // namespace windrow
