// Where one thread goes in and out for each op, and another now and then keeps it out.
#pragma once

#include <atomic>
#include <limits>

#include "core/asymmetric_fence.h"
#include "core/atomics.h"

namespace windrow {

/// One thread's. It pays two plain writes for going through; who closes it pays for both.
class Turnstile {
 public:
  /// Its thread: waits while it is closed.
  [[gnu::always_inline]] void enter() {
    inside_.store(true, std::memory_order_relaxed);
    AsymmetricFence::light();
    // acquire: pairs with open().
    if (closed_.load(std::memory_order_acquire)) [[unlikely]]
      wait();
  }
  void leave() { inside_.store(false, std::memory_order_release); }

  /// Others, one at a time: to be closed, then AsymmetricFence::heavy(), then its thread is outside once it has left.
  void close() { closed_.store(true, std::memory_order_relaxed); }
  /// False if that takes more than so many looks.
  bool await_outside(int looks = std::numeric_limits<int>::max()) const {
    for (int round = 0; inside_.load(std::memory_order_acquire); ++round) {
      if (round == looks) return false;
      StdAtomics::pause(round);
    }
    return true;
  }
  void open() { closed_.store(false, std::memory_order_release); }
  /// In a forked child, where its thread does not exist.
  void forget_thread() { inside_.store(false); }

 private:
  [[gnu::noinline]] void wait() {
    while (closed_.load(std::memory_order_acquire)) {
      leave();
      for (int round = 0; closed_.load(std::memory_order_acquire); ++round) StdAtomics::pause(round);
      inside_.store(true, std::memory_order_relaxed);
      AsymmetricFence::light();
    }
  }

  std::atomic<bool> inside_{false}, closed_{false};
};

}  // namespace windrow
