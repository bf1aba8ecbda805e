// Detects reads by pages that fault when a certain thread accesses them.
#pragma once

#include <cstddef>
#include <span>

namespace windrow {

/// Owner of the protection of some pages, but not of their bytes, which must outlive the guard. While a guard is shut,
/// the first access to its pages faults and opens the guard; the access is noted if it came from the thread that shut
/// the guard. Not thread-safe, except for the faults.
///
/// The first guard installs a handler for SIGSEGV, which stays installed and passes faults elsewhere on to the previous
/// handler. System calls that access bytes of a shut guard fail with EFAULT.
class PageGuard {
 public:
  /// Whether the bytes are whole pages.
  static bool fits(std::span<const std::byte> bytes);

  /// The guard is open. The bytes must fit, and must be readable and writable.
  explicit PageGuard(std::span<std::byte> bytes);
  ~PageGuard();
  PageGuard(const PageGuard&) = delete;
  PageGuard& operator=(const PageGuard&) = delete;

  void shut();
  /// Returns whether the calling thread had shut the guard and has touched the bytes since.
  bool open();

  struct Range;

 private:
  Range* range_;
};

}  // namespace windrow
