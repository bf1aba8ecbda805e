// What the ops that run on a thread show while the thread waits.
#pragma once

#include "core/running.h"
#include "trace/clock.h"

namespace windrow {

/// While it lives, the ops on this thread are at the stage of a wait inside; a trace of theirs shows it.
class InsideWait {
 public:
  InsideWait();
  ~InsideWait();
  InsideWait(const InsideWait&) = delete;
  InsideWait& operator=(const InsideWait&) = delete;

 private:
  const Ticks begun_ = now_in_ticks();
};

}  // namespace windrow
