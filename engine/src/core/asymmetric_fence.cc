#include "core/asymmetric_fence.h"

#include <chrono>
#include <thread>

#if defined(__linux__)
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace windrow {

// Before its turn in the initialisation of the program it is false, and both halves are fences.
std::atomic<bool> AsymmetricFence::is_asymmetric_{AsymmetricFence::set_up()};

bool AsymmetricFence::set_up() noexcept {
#if defined(__linux__) && !defined(__SANITIZE_THREAD__)
  return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
#else
  return false;
#endif
}

void AsymmetricFence::heavy() noexcept {
#if defined(__SANITIZE_THREAD__)
  order();
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!is_asymmetric_.load(std::memory_order_relaxed)) return;
#if defined(__linux__)
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0) return;
#endif
  // The system has taken the call away from us. What others wrote before that will have arrived then: no processor
  // keeps a write to itself for so long.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
#endif
}

void AsymmetricFence::order() {
  static std::atomic<int> last;
  last.fetch_add(1, std::memory_order_acq_rel);
}

}  // namespace windrow
