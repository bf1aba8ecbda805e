// Asks for a cache line before it is needed.
#pragma once

namespace windrow {

/// The line will be written, and another core may have written it last. What the compiler has for this asks for a copy
/// to read on processors that it does not know, and the write would have to ask for the line again.
inline void prefetch_to_write(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

}  // namespace windrow
