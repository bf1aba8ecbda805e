// A queue of ready ops for many producers and consumers; wraps moodycamel::ConcurrentQueue.
#pragma once

// Version 1.0.4 moved its headers.
#if __has_include(<concurrentqueue/moodycamel/concurrentqueue.h>)
#include <concurrentqueue/moodycamel/concurrentqueue.h>
#else
#include <concurrentqueue/concurrentqueue.h>
#endif

#include <cstddef>
#include <cstdint>
#include <new>

#include "record/op.h"

namespace windrow {

/// Ops that one thread puts are taken in the order of its puts; ops of several threads are taken in any order.
class OpQueue {
 public:
  /// Returns false, with no effect, if there is no memory.
  [[nodiscard]] bool put(OpRecord& op) noexcept { return queue_.enqueue(&op); }
  /// An op, or null if none is found. It may miss an op while other threads put and take.
  OpRecord* take() {
    OpRecord* op = nullptr;
    return queue_.try_dequeue(op) ? op : nullptr;
  }
  /// The number of ops; approximate while other threads put and take. A thread that calls it after
  /// AsymmetricFence::heavy() counts all ops that another thread put before its light half of the fence.
  std::uint64_t size() const { return queue_.size_approx(); }

  /// Called in a forked child, where the queue is empty: constructs a new queue, since a thread that does not exist
  /// here may have been in the middle of a take. The memory of the old queue is leaked.
  void forget_threads() noexcept { ::new (&queue_) Queue(0); }

 private:
  struct Traits : moodycamel::ConcurrentQueueDefaultTraits {
    static constexpr bool RECYCLE_ALLOCATED_BLOCKS = true;  // as versions before 1.0.4 always do
    static void* malloc(std::size_t bytes) { return ::operator new(bytes, std::nothrow); }
    static void free(void* memory) { ::operator delete(memory); }
  };
  using Queue = moodycamel::ConcurrentQueue<OpRecord*, Traits>;

  Queue queue_{0};
};

}  // namespace windrow
