// Memory of large callables. Threads exchange freed slots in batches.
#include <array>
#include <atomic>
#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

#include "process/fork.h"
#include "record/atomics.h"
#include "windrow/engine/internal/function.h"
#include "windrow/engine/internal/mutex.h"

namespace windrow {
namespace {

constexpr std::size_t line = CallableMemory::alignment;
constexpr std::size_t classes = 16;  // of 1 line, of 2 lines and so on; larger callables come from the heap
constexpr int slots_of_batch = 32;

/// The contents of a free slot. The first slot of a batch represents the batch.
struct Slot {
  Slot* next;        ///< of the batch
  Slot* next_batch;  ///< of a list of batches; in first slots only
};

/// The batches that no thread keeps. Trivially destructible, so that it can be used until the process ends.
class Depot {
 public:
  /// Null if there is none.
  Slot* take(std::size_t size_class) WINDROW_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    Slot* const batch = batches_[size_class];
    if (batch != nullptr) batches_[size_class] = batch->next_batch;
    return batch;
  }
  void put(Slot* batch, std::size_t size_class) WINDROW_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    batch->next_batch = std::exchange(batches_[size_class], batch);
  }
  void each_mutex(EachMutex f) { f(mutex_); }  // see fork.h

 private:
  Mutex mutex_;
  std::array<Slot*, classes> batches_ WINDROW_GUARDED_BY(mutex_) = {};
};
static_assert(std::is_trivially_destructible_v<Depot>);
constinit Depot depot;

/// Slabs are never freed. They are listed so that leak checkers find them.
struct Slab {
  Slab* next;
};
constinit std::atomic<Slab*> slabs{nullptr};

Slot* new_batch(std::size_t slot_bytes) {
  static_assert(sizeof(Slab) <= line && sizeof(Slot) <= line);
  auto* const memory =
      static_cast<std::byte*>(::operator new(line + slots_of_batch * slot_bytes, std::align_val_t(line)));
  auto* const slab = ::new (memory) Slab{slabs.load(std::memory_order_relaxed)};
  while (!slabs.compare_exchange_weak(slab->next, slab, std::memory_order_release, std::memory_order_relaxed)) {
  }
  Slot* first = nullptr;
  for (std::size_t i = slots_of_batch; i-- > 0;) first = ::new (memory + line + i * slot_bytes) Slot{first, nullptr};
  return first;
}

/// The slots of one class that a thread keeps: at most two batches.
struct FreeSlots {
  Slot* slots = nullptr;
  int count = 0;          ///< too high after a batch of an ended thread, which may be smaller than others
  Slot* spare = nullptr;  ///< a batch that counted as full
};

/// Trivially destructible, so that threads may use it until they end.
struct SlotsOfThread {
  std::array<FreeSlots, classes> of = {};
  enum class Thread : unsigned char { unknown, known, ending } thread = Thread::unknown;
};
static_assert(std::is_trivially_destructible_v<SlotsOfThread>);
constinit thread_local SlotsOfThread slots_here;

void put_all(SlotsOfThread& all, std::size_t size_class) noexcept {
  FreeSlots& free = all.of[size_class];
  for (Slot* batch : {std::exchange(free.slots, nullptr), std::exchange(free.spare, nullptr)}) {
    if (batch != nullptr) depot.put(batch, size_class);
  }
  free.count = 0;
}

/// Gives the thread's slots to others when it ends.
struct AtEndOfThread {
  ~AtEndOfThread() {
    for (std::size_t i = 0; i < classes; ++i) put_all(slots_here, i);
    slots_here.thread = SlotsOfThread::Thread::ending;
  }
};

/// To be called before the thread keeps its first slot.
void expect_end_of_thread() {
  if (slots_here.thread != SlotsOfThread::Thread::unknown) return;
  thread_local const AtEndOfThread at_end;
  static_cast<void>(&at_end);
  slots_here.thread = SlotsOfThread::Thread::known;
}

void load_slots(FreeSlots& free, std::size_t size_class) {
  expect_end_of_thread();
  free.slots = std::exchange(free.spare, nullptr);
  if (free.slots == nullptr) free.slots = depot.take(size_class);
  if (free.slots == nullptr) free.slots = new_batch((size_class + 1) * line);
  free.count = slots_of_batch;
}

/// Gives away the free slots: there are none, or they count as a full batch. Afterwards there are none.
void unload_slots(FreeSlots& free, std::size_t size_class) noexcept {
  expect_end_of_thread();
  free.count = 0;
  Slot* const full = std::exchange(free.slots, nullptr);
  if (full == nullptr) return;
  if (Slot* const older = std::exchange(free.spare, full)) depot.put(older, size_class);
}

#if defined(__has_feature)
#define WINDROW_HAS_FEATURE(name) __has_feature(name)
#else
#define WINDROW_HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || WINDROW_HAS_FEATURE(address_sanitizer) || \
    WINDROW_HAS_FEATURE(thread_sanitizer)
constexpr bool use_again = false;  // so that uses after the free are found, and a new mutex is not taken for an old one
#else
constexpr bool use_again = true;
#endif
#undef WINDROW_HAS_FEATURE

std::size_t class_of(std::size_t bytes) { return (bytes - 1) / line; }

}  // namespace

void each_mutex_of_callables(EachMutex f) { depot.each_mutex(f); }

void* CallableMemory::take(std::size_t bytes) {
  const std::size_t size_class = class_of(bytes);
  if (!use_again || size_class >= classes) return ::operator new(bytes, std::align_val_t(line));
  FreeSlots& free = slots_here.of[size_class];
  if (free.slots == nullptr) [[unlikely]]
    load_slots(free, size_class);
  Slot* const slot = free.slots;
  free.slots = slot->next;
  --free.count;
  if (free.slots != nullptr) StdAtomics::prefetch_to_write(free.slots);
  if (slots_here.thread == SlotsOfThread::Thread::ending) [[unlikely]]
    put_all(slots_here, size_class);
  return slot;
}

void CallableMemory::give_back(void* memory, std::size_t bytes) noexcept {
  const std::size_t size_class = class_of(bytes);
  if (!use_again || size_class >= classes) return ::operator delete(memory, std::align_val_t(line));
  FreeSlots& free = slots_here.of[size_class];
  if (free.slots == nullptr || free.count == slots_of_batch) [[unlikely]]
    unload_slots(free, size_class);
  free.slots = ::new (memory) Slot{free.slots, nullptr};
  ++free.count;
  if (slots_here.thread == SlotsOfThread::Thread::ending) [[unlikely]]
    put_all(slots_here, size_class);
}

}  // namespace windrow
