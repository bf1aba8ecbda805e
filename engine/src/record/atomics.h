// The atomics on which dependency.h is a template, and the lock bit. An interleaving checker can substitute its own
// atomics.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace windrow {

/// A value that other threads may read at any time. It orders nothing.
template <class T>
class Relaxed {
 public:
  Relaxed(T value) : value_(value) {}
  operator T() const { return value_.load(std::memory_order_relaxed); }
  T operator->() const { return *this; }
  Relaxed& operator=(T value) { return value_.store(value, std::memory_order_relaxed), *this; }

 private:
  std::atomic<T> value_;
};

/// The atomics that the engine uses. A checker supplies a class with the same members.
struct StdAtomics {
  template <class T>
  using Atomic = std::atomic<T>;
  /// Data without synchronisation of its own: the protocol passes it from thread to thread.
  template <class T>
  using Plain = T;
  /// The same for data that a concurrent search for cycles of waits reads.
  template <class T>
  using Seen = Relaxed<T>;

  /// Fetches the cache line for writing. On x86-64 `prefetchw` is issued directly: for processors that the compiler
  /// does not know, __builtin_prefetch requests the line for reading only, and the write would have to request it
  /// again.
  static void prefetch_to_write(const void* line) {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
    __builtin_prefetch(line, 1);
#endif
  }

  /// Called after the `round`-th failed attempt in a row to take a lock bit. Holders only link records, so a long wait
  /// means that the holder was descheduled: yield the core first, then sleep.
  static void pause(int round) {
    if (round < 64) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    } else if (round < 128) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
};

/// A spin lock of one bit. Unlocking is a plain store and wakes nobody, so waiters poll.
template <class Atomics>
class LockBit {
 public:
  [[gnu::always_inline]] void lock() {
    // acquire: pairs with the release in unlock() of the previous holder.
    if (held_.exchange(true, std::memory_order_acquire)) [[unlikely]]
      wait();
  }
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  [[gnu::noinline]] void wait() {
    for (int round = 0; held_.exchange(true, std::memory_order_acquire); ++round) Atomics::pause(round);
  }

  typename Atomics::template Atomic<bool> held_{false};
};

/// Holds the lock bit for its lifetime; does nothing for a null pointer.
template <class Atomics>
class BitHeld {
 public:
  explicit BitHeld(LockBit<Atomics>* bit) : bit_(bit) {
    if (bit_ != nullptr) bit_->lock();
  }
  ~BitHeld() {
    if (bit_ != nullptr) bit_->unlock();
  }
  BitHeld(const BitHeld&) = delete;
  BitHeld& operator=(const BitHeld&) = delete;

 private:
  LockBit<Atomics>* const bit_;
};

}  // namespace windrow
