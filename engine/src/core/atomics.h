// What dependency.h is a template on, so that an interleaving checker may put its own in the place; and the lock bit
// made of it.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace windrow {

/// The atomics the engine ships with. A checker supplies a class of the same shape.
struct StdAtomics {
  template <class T>
  using Atomic = std::atomic<T>;
  /// Data that the protocol hands from thread to thread.
  template <class T>
  using Plain = T;

  /// The line will be written, and another core may have written it last. What compilers have for this asks for a copy
  /// to read on processors that they do not know, and the write would have to ask for the line again.
  static void prefetch_to_write(const void* line) {
#if defined(__x86_64__)
    asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
    __builtin_prefetch(line, 1);
#endif
  }

  /// Called while a lock bit is found taken, the `round`-th time in a row. Holders only link, so a long wait means that
  /// the holder lost its core: give ours away, then sleep.
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

/// One bit that guards one thing. Unlocking is a plain store, which is why waiters poll instead of queueing.
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

/// Holds the bit, if there is one, as long as it lives.
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
