// A clock that is cheaper to read than the operations that it measures.
#pragma once

#include <chrono>
#include <cstdint>

namespace windrow::perf {

/// Reads the time stamp counter on x86-64, the steady clock elsewhere. The rate must be measured (TickRate).
inline std::uint64_t ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

}  // namespace windrow::perf
