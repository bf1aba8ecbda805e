#include "record/asymmetric_fence.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace windrow {

// False before the static initialisation of this file, so that both halves are fences until then.
std::atomic<bool> AsymmetricFence::is_asymmetric_{AsymmetricFence::set_up()};

bool AsymmetricFence::set_up() noexcept {
#if !defined(__SANITIZE_THREAD__)
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
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0) return;
  // The system no longer permits the call. After this sleep, earlier writes of other threads are visible: no processor
  // delays a write for so long.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
#endif
}

void AsymmetricFence::order() {
  static std::atomic<int> last;
  last.fetch_add(1, std::memory_order_acq_rel);
}

}  // namespace windrow
