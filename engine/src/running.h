// Which ops run on this thread.
#pragma once

#include "op.h"

namespace windrow {

class Crew;

/// One op whose function runs on this thread, or whose captures are being destroyed. Frames form a stack, since an op
/// of one engine may push to a serial engine. Owner: the thread.
struct Running {
  Running(Core& engine, OpRecord& running, Crew* slot);
  ~Running();
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  Core* const core;
  OpRecord* const op;
  Crew* const crew;  ///< whose slot the op takes; null outside the engine's threads
  Running* const outer;

  /// The innermost frame of this thread, or null.
  static Running* innermost();
};

}  // namespace windrow
