// Ready ops on their way from many threads to many: moodycamel::ConcurrentQueue as the engine uses it.
#pragma once

#include <concurrentqueue/concurrentqueue.h>

#include <cstddef>
#include <cstdint>
#include <new>

#include "core/op.h"

namespace windrow {

/// Ops that one thread puts are taken in that order; those of several threads in any. Putting takes no lock, except
/// that threads that put for the first time may wait for each other.
class OpQueue {
 private:
  struct Traits : moodycamel::ConcurrentQueueDefaultTraits {
    static void* malloc(std::size_t bytes) { return ::operator new(bytes, std::nothrow); }
    static void free(void* memory) { ::operator delete(memory); }
  };
  using Queue = moodycamel::ConcurrentQueue<OpRecord*, Traits>;

 public:
  /// What a thread that takes often keeps, so that it goes on where it found ops the last time.
  class Taker {
   public:
    explicit Taker(OpQueue& queue) : token_(queue.queue_) {}

   private:
    friend class OpQueue;
    moodycamel::ConsumerToken token_;
  };

  /// False, and nothing has changed, if there is no memory.
  [[nodiscard]] bool put(OpRecord& op) noexcept { return queue_.enqueue(&op); }
  /// An op, or null if none is found. While others put and take, it may miss one.
  OpRecord* take(Taker& taker) {
    OpRecord* op = nullptr;
    return queue_.try_dequeue(taker.token_, op) ? op : nullptr;
  }
  OpRecord* take() {
    OpRecord* op = nullptr;
    return queue_.try_dequeue(op) ? op : nullptr;
  }
  /// While others put and take, about that. A thread that calls it behind AsymmetricFence::heavy() counts all ops whose
  /// puts came before the light half of another thread.
  std::uint64_t size() const { return queue_.size_approx(); }

  /// In a forked child, where the queue is empty: begins anew, since a thread that does not exist here may have been in
  /// the middle of a take. The old queue's memory is lost.
  void forget_threads() noexcept { ::new (&queue_) Queue(0); }

 private:
  Queue queue_{0};
};

}  // namespace windrow
