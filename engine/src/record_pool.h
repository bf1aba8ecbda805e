// Where op records live: an engine's pool, and a cache for each thread that pushes or finishes ops.
//
// Records are made by one thread and freed by another, so the caches exchange full and empty magazines through the
// pool (Bonwick and Adams 2001): one lock for thirty records. Memory is cut into slots of a few sizes and kept until
// the engine ends, so a slot always holds a record or what is left of one, and whoever looks for all unfinished ops may
// walk over the slots.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "op.h"
#include "windrow/engine/mutex.h"

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

  /// One thread's. Used by one thread at a time, and only with its pool.
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

  /// A record with room for so many accesses and a body of so many bytes. Throws std::bad_alloc.
  OpRecord* make(Cache& cache, std::size_t accesses, std::size_t body_bytes);
  /// The record's body ends, and its memory is free for others.
  void free(Cache& cache, OpRecord* record) noexcept;

  /// Calls f(record) for each slot. While it runs no record may be made. Others may be freed: what was fixed when they
  /// joined can still be read then.
  template <class F>
  void for_each(F&& f) WINDROW_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    for (const Slab& slab : slabs_) {
      for (std::size_t at = 0; at < slab.bytes; at += slab.slot_bytes) {
        f(*reinterpret_cast<OpRecord*>(slab.memory.get() + at));
      }
    }
  }

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

  static std::size_t class_of(std::size_t bytes);
  static std::size_t bytes_of(std::size_t size_class);
  /// Puts a magazine with a slot in it into `pair.loaded`.
  void load(Cache::Pair& pair, std::size_t size_class) WINDROW_EXCLUDES(mutex_);
  /// Puts one with room into `pair.loaded`; false if there is no memory for it.
  bool unload(Cache::Pair& pair, std::size_t size_class) noexcept WINDROW_EXCLUDES(mutex_);
  Magazine* new_magazine() WINDROW_REQUIRES(mutex_);
  void add_slab(Magazine& magazine, std::size_t size_class) WINDROW_REQUIRES(mutex_);

  Mutex mutex_;
  std::array<Depot, classes> depots_ WINDROW_GUARDED_BY(mutex_);
  std::vector<Slab> slabs_ WINDROW_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Magazine>> magazines_ WINDROW_GUARDED_BY(mutex_);
};

}  // namespace windrow
