// A fence with two halves: a light one for every op, which costs nothing, and a heavy one for rare events, which costs
// microseconds.
//
// Suppose one thread writes A, passes the light half and reads B, and another writes B, passes the heavy half and reads
// A. Then at least one of them sees what the other wrote. On Linux the heavy half makes all threads of the process pass
// a fence, by the system call membarrier. Without that call both halves are fences.
#pragma once

#include <atomic>

namespace windrow {

class AsymmetricFence {
 public:
  [[gnu::always_inline]] static void light() {
#if defined(__SANITIZE_THREAD__)
    order();  // ThreadSanitizer does not understand fences
#else
    if (is_asymmetric_.load(std::memory_order_relaxed)) [[likely]] {
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
#endif
  }
  static void heavy() noexcept;

 private:
  /// If two threads call this, the later one sees what the earlier one wrote before.
  static void order();
  static bool set_up() noexcept;

  static std::atomic<bool> is_asymmetric_;
};

}  // namespace windrow
