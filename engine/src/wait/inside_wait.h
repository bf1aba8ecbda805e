// Marks the ops of a thread as waiting while the thread waits.
#pragma once

#include "record/running.h"
#include "trace/clock.h"

namespace windrow {

/// During its lifetime, the ops on this thread are at Stage::waits_inside. A trace of the ops shows the wait. An op in
/// whose loop this thread only helps goes on elsewhere, and is left alone.
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
