// An asymmetric lock: entering costs its owner two plain stores; excluding the owner costs another thread a membarrier.
#pragma once

#include <atomic>
#include <limits>

#include "record/asymmetric_fence.h"
#include "record/atomics.h"

namespace windrow {

/// Belongs to one thread. That thread pays two plain writes per pass; the closing thread pays for the synchronisation.
class Turnstile {
 public:
  /// Waits while the turnstile is closed. To be called by its own thread only.
  [[gnu::always_inline]] void enter() {
    inside_.store(true, std::memory_order_relaxed);
    AsymmetricFence::light();
    // acquire: pairs with open().
    if (closed_.load(std::memory_order_acquire)) [[unlikely]]
      wait();
  }
  void leave() { inside_.store(false, std::memory_order_release); }

  /// Keeps the thread inside for a scope.
  class Pass {
   public:
    explicit Pass(Turnstile& turnstile) : turnstile_(turnstile) { turnstile_.enter(); }
    ~Pass() { turnstile_.leave(); }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

   private:
    Turnstile& turnstile_;
  };

  /// Closing takes three steps, by one other thread at a time: close(), AsymmetricFence::heavy(), await_outside().
  /// After these the turnstile's own thread is outside.
  void close() { closed_.store(true, std::memory_order_relaxed); }
  /// Waits until the turnstile's own thread is outside. Returns false after `looks` failed looks.
  bool await_outside(int looks = std::numeric_limits<int>::max()) const {
    for (int round = 0; inside_.load(std::memory_order_acquire); ++round) {
      if (round == looks) return false;
      StdAtomics::pause(round);
    }
    return true;
  }
  void open() { closed_.store(false, std::memory_order_release); }
  /// To be called in a forked child, where the turnstile's own thread does not exist.
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
