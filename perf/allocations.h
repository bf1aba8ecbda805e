// Counts allocations. A program that links this has operator new replaced.
#pragma once

#include <cstdint>

namespace windrow::perf {

/// While it exists, calls of operator new are counted, of all threads. Otherwise each of them reads one flag. Only one
/// may exist at a time.
class CountedAllocations {
 public:
  CountedAllocations();
  ~CountedAllocations();
  CountedAllocations(const CountedAllocations&) = delete;
  CountedAllocations& operator=(const CountedAllocations&) = delete;

  /// Since it was made.
  std::uint64_t calls() const;
};

}  // namespace windrow::perf
