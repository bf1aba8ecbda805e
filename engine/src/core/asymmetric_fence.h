// A fence of two halves: one for what happens with each op and costs nothing, one for what is rare and costs
// microseconds.
//
// Of a thread that writes A, passes the light half and reads B, and one that writes B, passes the heavy half and reads
// A, at least one sees what the other wrote. On Linux the heavy half makes all threads of the process pass a fence, by
// the system call membarrier; without it both halves are fences.
#pragma once

#include <atomic>

namespace windrow {

class AsymmetricFence {
 public:
  static void light() {
#if defined(__SANITIZE_THREAD__)
    order();  // which knows no fences
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
  /// Of two threads that call this, the later one sees what the earlier one wrote.
  static void order();
  static bool set_up() noexcept;

  static std::atomic<bool> is_asymmetric_;
};

}  // namespace windrow
