// Leave for others: what a thread that waits does with the slots of its ops.
#pragma once

#include "inside_wait.h"
#include "running.h"
#include "slots.h"

namespace windrow {

/// While it lives, the ops that run on this thread leave their slots to others. Its making throws Error if that would
/// leave nobody to run what is waited for.
class SlotsFree {
 public:
  SlotsFree() {
    try {
      for (Running* frame = Running::innermost(); frame != nullptr; frame = frame->outer) {
        if (frame->slots == nullptr) continue;
        frame->slots->block();
        ++freed_;
      }
    } catch (...) {
      take_back();
      throw;
    }
  }
  ~SlotsFree() { take_back(); }
  /// The wait is given up.
  void let_others_in() const {
    int left = freed_;
    for (Running* frame = Running::innermost(); left > 0; frame = frame->outer) {
      if (frame->slots == nullptr) continue;
      frame->slots->let_others_in();
      --left;
    }
  }
  SlotsFree(const SlotsFree&) = delete;
  SlotsFree& operator=(const SlotsFree&) = delete;

 private:
  void take_back() {
    // Taking the turns of several serial engines one after the other could close a ring of turns.
    const auto patience = freed_ == 1 ? Slots::Patience::wait_for_turn : Slots::Patience::give_up_if_taken;
    for (Running* frame = Running::innermost(); freed_ > 0; frame = frame->outer) {
      if (frame->slots == nullptr) continue;
      frame->slots->unblock(patience);
      --freed_;
    }
  }

  const InsideWait inside_;  // its end comes after the slots are taken back
  int freed_ = 0;            // of the innermost frames with slots
};

}  // namespace windrow
