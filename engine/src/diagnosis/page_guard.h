// Sees reads: pages that fault when a certain thread touches them. Linux only; elsewhere nothing fits.
#pragma once

#include <cstddef>
#include <span>

namespace windrow {

/// An owner of the protection of some pages, not of their bytes, which must outlive it. While it is shut, the first
/// access to them faults and opens it; it is noted if it came from the thread that shut it. Not thread-safe but for
/// the faults.
///
/// The first guard installs a handler for SIGSEGV, which stays, and hands faults elsewhere on to the one before it.
/// System calls that are given the bytes of a shut guard fail with EFAULT.
class PageGuard {
 public:
  /// Whether the bytes are whole pages.
  static bool fits(std::span<const std::byte> bytes);

  /// Open. The bytes fit, and may be read and written.
  explicit PageGuard(std::span<std::byte> bytes);
  ~PageGuard();
  PageGuard(const PageGuard&) = delete;
  PageGuard& operator=(const PageGuard&) = delete;

  void shut();
  /// Returns whether this thread has shut it and touched the bytes since.
  bool open();

  struct Range;

 private:
  Range* range_;
};

}  // namespace windrow
