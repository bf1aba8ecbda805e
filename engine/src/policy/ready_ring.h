// A ring of ready ops: only the owning thread puts ops, and any thread takes them, in order.
//
// The owner's side is that of Chase and Lev's deque (2005). Takers, including the owner, take at the other end, so ops
// are taken in the order in which they became ready.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "record/op.h"

namespace windrow {

class ReadyRing {
 public:
  /// Whether a taker also sees ops that the owner has not handed over yet (`close`) or does not (`plain`).
  enum class Look { plain, close };

  ReadyRing() { grow(0); }

  // ---- the owner ----
  /// Takers with a close look see the op at once, others after hand_over(). So takers that have almost caught up with
  /// the owner do not touch the cache line that it writes. Returns false, with no effect, if the ring must grow and
  /// there is no memory.
  [[nodiscard]] bool put(OpRecord& op) noexcept {
    if (put_ - head_seen_ > own_->mask && !make_room()) [[unlikely]]
      return false;
    own_->at(put_).store(&op, std::memory_order_relaxed);
    end_.store(++put_, std::memory_order_release);
    return true;
  }
  void hand_over() noexcept {
    handed_over_ = put_;
    tail_.store(put_, std::memory_order_release);
    if (most_kept_ > 1)
      most_kept_ = put_ - head_.load(std::memory_order_relaxed) > most_kept_ahead ? most_kept_ahead : 8;
  }
  /// Whether the owner should hand over now. Until then only idle takers, which look closely, find the ops. An owner
  /// that is far ahead of the takers hands over less often, since each time it contends with them.
  bool is_due() const { return put_ - handed_over_ >= most_kept_; }
  /// The number of ops not handed over; they may have been taken nevertheless.
  std::uint64_t kept() const { return put_ - handed_over_; }
  /// Makes each op due at once.
  void keep_none() { most_kept_ = 1; }

  /// The oldest op, or null if there is none.
  OpRecord* take() {
    std::uint64_t head = head_.load(std::memory_order_acquire);
    while (true) {
      if (head >= put_) return nullptr;
      OpRecord* op = own_->at(head).load(std::memory_order_relaxed);
      // On failure another thread has taken the op, and the pointer read may be that of a later op.
      if (head_.compare_exchange_weak(head, head + 1, std::memory_order_acq_rel, std::memory_order_acquire)) return op;
    }
  }

  /// The newest wanted op among the newest `most`; null if there is none.
  ///
  /// While the owner looks, it holds all ops: it moves head_ one whole ring ahead, beyond end_ and tail_. Other takers
  /// then find nothing, and the exchange of a taker that had looked earlier fails, since head_ never returns to an
  /// earlier value. Positions that are a whole ring apart share a slot, so the remaining ops need not move: put_ also
  /// moves ahead by one ring.
  template <class Wanted>
  OpRecord* take_newest(const Wanted& wanted, std::uint64_t most) {
    Slots& slots = *own_;
    const std::uint64_t ring = slots.mask + 1;
    std::uint64_t head = head_.load(std::memory_order_acquire);
    do {
      if (head >= put_) return nullptr;
      // On failure another thread has taken ops.
    } while (!head_.compare_exchange_weak(head, head + ring, std::memory_order_acq_rel, std::memory_order_acquire));
    OpRecord* found = nullptr;
    const std::uint64_t last = put_ - head > most ? put_ - most : head;
    for (std::uint64_t at = put_; found == nullptr && at-- != last;) {
      OpRecord* const op = slots.at(at).load(std::memory_order_relaxed);
      if (!wanted(*op)) continue;
      found = op;
      for (--put_; at != put_; ++at) {
        slots.at(at).store(slots.at(at + 1).load(std::memory_order_relaxed), std::memory_order_relaxed);
      }
      break;
    }
    put_ += ring;
    head_seen_ = head + ring;
    end_.store(put_, std::memory_order_release);
    hand_over();
    return found;
  }

  // ---- others ----
  /// The oldest op, or null if there is none. Moves more ops, up to half of them, to `mine`, the calling thread's ring:
  /// so takers of one ring contend once for several ops instead of once for each.
  template <Look look = Look::plain>
  OpRecord* take_some(ReadyRing& mine) {
    Slots& my_slots = *mine.own_;
    const std::uint64_t room = my_slots.mask + 1 - (mine.put_ - mine.head_.load(std::memory_order_acquire));
    std::uint64_t head = head_.load(std::memory_order_acquire);
    while (true) {
      const std::uint64_t tail = end<look>();
      if (head >= tail) return nullptr;
      const std::uint64_t count = std::min({(tail - head + 1) / 2, most_moved, room + 1});
      Slots& slots = *slots_.load(std::memory_order_acquire);
      OpRecord* const first = slots.at(head).load(std::memory_order_relaxed);
      // Other threads do not see these copies yet.
      for (std::uint64_t i = 1; i < count; ++i) {
        OpRecord* const op = slots.at(head + i).load(std::memory_order_relaxed);
        my_slots.at(mine.put_ + i - 1).store(op, std::memory_order_relaxed);
      }
      // On failure other threads have taken ops, and the pointers read may be those of later ops.
      if (!head_.compare_exchange_weak(head, head + count, std::memory_order_acq_rel, std::memory_order_acquire)) {
        continue;
      }
      for (std::uint64_t i = 0; i + 1 < count; ++i)
        prefetch(my_slots.at(mine.put_ + i).load(std::memory_order_relaxed));
      if (count > 1) {
        mine.put_ += count - 1;
        mine.end_.store(mine.put_, std::memory_order_release);
        mine.hand_over();
      }
      return first;
    }
  }

  /// The number of ops; approximate while other threads take and put.
  std::uint64_t size() const {
    const std::uint64_t head = head_.load(std::memory_order_acquire);
    return std::max(end_.load(std::memory_order_acquire), head) - head;
  }
  template <Look look = Look::plain>
  bool empty() const {
    return head_.load(std::memory_order_acquire) >= end<look>();
  }

 private:
  struct alignas(64) Slots {
    explicit Slots(std::uint64_t size) : mask(size - 1), ops(size) {}
    std::atomic<OpRecord*>& at(std::uint64_t index) { return ops[index & mask]; }
    const std::uint64_t mask;
    std::vector<std::atomic<OpRecord*>> ops;
  };

  static constexpr std::uint64_t first_size = 256, most_moved = 16, most_kept_ahead = 64;

  /// Fetches an op that another thread wrote last.
  static void prefetch(const OpRecord* op) {
    StdAtomics::prefetch_to_write(op);
    StdAtomics::prefetch_to_write(reinterpret_cast<const std::byte*>(op) + 64);
  }

  template <Look look>
  std::uint64_t end() const {
    return (look == Look::close ? end_ : tail_).load(std::memory_order_acquire);
  }

  /// False if there is no memory.
  [[gnu::noinline]] bool make_room() noexcept {
    head_seen_ = head_.load(std::memory_order_acquire);
    if (put_ - head_seen_ <= own_->mask) return true;
    try {
      grow(head_seen_);
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  /// Moves the ops from position `head` on to a larger array.
  void grow(std::uint64_t head) {
    Slots* const old = own_;
    all_.push_back(std::make_unique<Slots>(old == nullptr ? first_size : 2 * (old->mask + 1)));
    own_ = all_.back().get();
    for (; head != put_; ++head) {
      own_->at(head).store(old->at(head).load(std::memory_order_relaxed), std::memory_order_relaxed);
    }
    slots_.store(own_, std::memory_order_release);
  }

  // Read often by takers; written occasionally by the owner, which never reads it.
  alignas(64) std::atomic<std::uint64_t> tail_{0};  // end of the ops handed over; head_ may be beyond it
  std::atomic<Slots*> slots_{nullptr};
  // Written by the owner with each op; read by takers that look closely.
  alignas(64) std::atomic<std::uint64_t> end_{0};
  // Written by takers.
  alignas(64) std::atomic<std::uint64_t> head_{0};
  // The owner's own copies of what others read.
  alignas(64) std::uint64_t put_ = 0;        // end_
  std::uint64_t handed_over_ = 0;            // tail_
  std::uint64_t most_kept_ = 8;              // how many ops are kept before they are handed over
  std::uint64_t head_seen_ = 0;              // an earlier value of head_
  Slots* own_ = nullptr;                     // slots_
  std::vector<std::unique_ptr<Slots>> all_;  // takers may still read the old arrays
};

class ThreadPool;

/// One thread's ring in one pool, which owns it.
struct PoolRing : ReadyRing {
  const ThreadPool* pool = nullptr;
  PoolRing* next = nullptr;  ///< of the pool; fixed
};

}  // namespace windrow
