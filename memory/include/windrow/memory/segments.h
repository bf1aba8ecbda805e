// Deprecated names of what Pool does itself now (pool.h).
#pragma once
#include "windrow/engine/requirements.h"

#include "windrow/memory/pool.h"

namespace windrow {

/// `least` and `small` have no effect.
struct SegmentsOptions {
  std::size_t least = 0, small = 0;
  bool fast_below = false;
  std::size_t limit = unlimited;

  operator PoolOptions() const {
    return {.limit = limit, .below = fast_below ? PoolOptions::Below::fast : PoolOptions::Below::slow};
  }
};

using Segments [[deprecated("use Pool, which divides segments")]] = Pool;
using SegmentsStats [[deprecated("use PoolStats")]] = PoolStats;

}  // namespace windrow
