// What an engine counts.
#pragma once
#include "windrow/engine/requirements.h"

#include <cstdint>

namespace windrow {

/// Counters since the engine was constructed.
struct EngineStats {
  std::uint64_t pushed = 0;
  std::uint64_t pending = 0;        ///< pushed and not yet finished; too high if ops come and finish meanwhile
  std::uint64_t pending_bytes = 0;  ///< held by pending ops, as given by PushOptions::bytes
  std::uint64_t failed = 0;         ///< ops that threw, or dropped their OnComplete
  std::uint64_t skipped = 0;        ///< ops that did not run because of poison
  std::uint64_t cancelled = 0;      ///< cancelled before they ran, or threw Cancelled; not counted in `failed`
  std::uint64_t waits = 0;          ///< calls of wait and wait_all, also timed ones, outside its ops
  std::uint64_t waits_in_ops = 0;   ///< calls of wait and wait_for inside its ops
  std::uint64_t spare_threads = 0;  ///< threads added for waits inside ops
};

}  // namespace windrow
