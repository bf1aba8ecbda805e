// Ready ops on their way from one thread to many: the thread that owns the ring puts, any thread takes, in order.
//
// The owner's side is that of Chase and Lev's deque (2005); takers, the owner among them, are at the other end, so that
// ops are taken up in the order they became ready.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "op.h"

namespace windrow {

class ReadyRing {
 public:
  /// Whether a taker sees what its owner has not handed over.
  enum class Look { plain, close };

  ReadyRing() { grow(nullptr, 0, 0); }

  /// Owner only. False, and nothing has changed, if it must grow and there is no memory. The write is sequentially
  /// consistent: either who goes to sleep sees the op, or this thread sees afterwards that somebody sleeps.
  [[nodiscard]] bool put(OpRecord& op) noexcept {
    const std::uint64_t end = end_.load(std::memory_order_relaxed);
    if (!keep(op)) return false;
    tail_.store(end + 1, std::memory_order_seq_cst);
    return true;
  }
  /// The same, but others look for it in vain until hand_over(), but for those that look closely.
  [[nodiscard]] bool keep(OpRecord& op) noexcept {
    const std::uint64_t end = end_.load(std::memory_order_relaxed);
    if (end - head_seen_ > slots_.load(std::memory_order_relaxed)->mask && !make_room(end)) [[unlikely]]
      return false;
    slots_.load(std::memory_order_relaxed)->at(end).store(&op, std::memory_order_relaxed);
    // release: for those that look closely.
    end_.store(end + 1, std::memory_order_release);
    return true;
  }
  /// Owner only.
  void hand_over() noexcept { tail_.store(end_.load(std::memory_order_relaxed), std::memory_order_seq_cst); }
  /// Owner only. How many were not handed over; they may have been taken nevertheless.
  std::uint64_t kept() const { return end_.load(std::memory_order_relaxed) - tail_.load(std::memory_order_relaxed); }

  /// Owner only. The oldest, or null if there is none.
  OpRecord* take() {
    std::uint64_t head = head_.load(std::memory_order_acquire);
    while (true) {
      if (head >= end_.load(std::memory_order_relaxed)) return nullptr;
      OpRecord* op = slots_.load(std::memory_order_acquire)->at(head).load(std::memory_order_relaxed);
      // On failure another has taken it, and what was read may be a later one's.
      if (head_.compare_exchange_weak(head, head + 1, std::memory_order_acq_rel, std::memory_order_acquire)) return op;
    }
  }

  /// The oldest, or null if there is none. More of them, up to half, change place to `mine`, the calling thread's: what
  /// takers of one ring would do to each other for each op, they do once for several.
  template <Look look = Look::plain>
  OpRecord* take_some(ReadyRing& mine) {
    const std::uint64_t my_tail = mine.end_.load(std::memory_order_relaxed);
    Slots& my_slots = *mine.slots_.load(std::memory_order_relaxed);
    const std::uint64_t room = my_slots.mask + 1 - (my_tail - mine.head_.load(std::memory_order_acquire));
    std::uint64_t head = head_.load(std::memory_order_acquire);
    while (true) {
      const std::uint64_t tail = end<look>();
      if (head >= tail) return nullptr;
      const std::uint64_t count = std::min({(tail - head + 1) / 2, most_moved, room + 1});
      Slots& slots = *slots_.load(std::memory_order_acquire);
      OpRecord* const first = slots.at(head).load(std::memory_order_relaxed);
      // Not to be seen yet.
      for (std::uint64_t i = 1; i < count; ++i) {
        OpRecord* const op = slots.at(head + i).load(std::memory_order_relaxed);
        my_slots.at(my_tail + i - 1).store(op, std::memory_order_relaxed);
      }
      // On failure others have taken some, and what was read may be later ones.
      if (!head_.compare_exchange_weak(head, head + count, std::memory_order_acq_rel, std::memory_order_acquire)) {
        continue;
      }
      for (std::uint64_t i = 1; i < count; ++i) prefetch(my_slots.at(my_tail + i - 1).load(std::memory_order_relaxed));
      if (count > 1) {
        mine.end_.store(my_tail + count - 1, std::memory_order_release);
        mine.tail_.store(my_tail + count - 1, std::memory_order_seq_cst);
      }
      return first;
    }
  }

  /// While others take and put, about that.
  std::uint64_t size() const {
    const std::uint64_t head = head_.load(std::memory_order_acquire);
    return std::max(end_.load(std::memory_order_acquire), head) - head;
  }
  template <Look look = Look::plain>
  bool empty() const {
    return head_.load(std::memory_order_acquire) >= end<look>();
  }

 private:
  struct Slots {
    explicit Slots(std::uint64_t size) : mask(size - 1), ops(size) {}
    std::atomic<OpRecord*>& at(std::uint64_t index) { return ops[index & mask]; }
    const std::uint64_t mask;
    std::vector<std::atomic<OpRecord*>> ops;
  };

  static constexpr std::uint64_t first_size = 256, most_moved = 16;

  /// Another thread wrote it last.
  static void prefetch(const OpRecord* op) {
    StdAtomics::prefetch_to_write(op);
    StdAtomics::prefetch_to_write(reinterpret_cast<const std::byte*>(op) + 64);
  }

  template <Look look>
  std::uint64_t end() const {
    return look == Look::close ? end_.load(std::memory_order_acquire) : tail_.load(std::memory_order_seq_cst);
  }

  /// False if there is no memory.
  [[gnu::noinline]] bool make_room(std::uint64_t tail) noexcept {
    Slots* const slots = slots_.load(std::memory_order_relaxed);
    head_seen_ = head_.load(std::memory_order_acquire);
    if (tail - head_seen_ <= slots->mask) return true;
    try {
      grow(slots, head_seen_, tail);
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  void grow(Slots* old, std::uint64_t head, std::uint64_t tail) {
    all_.push_back(std::make_unique<Slots>(old == nullptr ? first_size : 2 * (old->mask + 1)));
    Slots* slots = all_.back().get();
    for (; head != tail; ++head) {
      slots->at(head).store(old->at(head).load(std::memory_order_relaxed), std::memory_order_relaxed);
    }
    slots_.store(slots, std::memory_order_release);
  }

  // What takers read.
  alignas(64) std::atomic<std::uint64_t> tail_{0};  // behind what is handed over; head_ may be beyond it
  std::atomic<Slots*> slots_{nullptr};
  std::vector<std::unique_ptr<Slots>> all_;  // takers may still look at the old ones
  // What takers write.
  alignas(64) std::atomic<std::uint64_t> head_{0};
  // The owner's.
  alignas(64) std::atomic<std::uint64_t> end_{0};  // behind all; takers read it now and then
  std::uint64_t head_seen_ = 0;                    // some time ago
};

}  // namespace windrow
