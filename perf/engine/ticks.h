// A clock that costs less than what it measures.
#pragma once

#include <chrono>
#include <cstdint>

namespace windrow::perf {

/// The time stamp counter; elsewhere the steady clock. Of a rate that has to be measured.
inline std::uint64_t ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

}  // namespace windrow::perf
