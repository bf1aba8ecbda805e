// Waits whose thread looks elsewhere meanwhile.
#pragma once

#include <algorithm>
#include <chrono>

#include "wait/once_signal.h"
#include "windrow/engine/internal/engine_use.h"

namespace windrow {

/// Calls `wait_until(deadline)`; in parts, if the thread looks elsewhere.
template <class WaitUntil>
bool wait_and_look(Deadline deadline, const WaitUntil& wait_until) {
  if (!LookWhileWaiting::looks()) return wait_until(deadline);
  while (true) {
    const auto next_look = std::chrono::steady_clock::now() + LookWhileWaiting::interval;
    if (wait_until(deadline ? std::min(*deadline, next_look) : next_look)) return true;
    if (has_passed(deadline)) return false;
    LookWhileWaiting::look();
  }
}

}  // namespace windrow
