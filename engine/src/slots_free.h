// Leave for others: what a thread that waits does with the slots of its ops.
#pragma once

#include <vector>

#include "crew.h"
#include "running.h"

namespace windrow {

/// While it lives, the ops that run on this thread leave their slots to others. Its making throws Error if that would
/// leave nobody to run what is waited for.
class SlotsFree {
 public:
  SlotsFree() {
    try {
      for (Running* frame = Running::innermost(); frame != nullptr; frame = frame->outer) {
        if (frame->crew == nullptr) continue;
        frame->crew->block();
        crews_.push_back(frame->crew);
      }
    } catch (...) {
      take_back();
      throw;
    }
  }
  ~SlotsFree() { take_back(); }
  SlotsFree(const SlotsFree&) = delete;
  SlotsFree& operator=(const SlotsFree&) = delete;

 private:
  void take_back() {
    // Taking the turns of several serial engines one after the other could close a ring of turns.
    const auto patience = crews_.size() == 1 ? Crew::Patience::wait_for_turn : Crew::Patience::give_up_if_taken;
    for (Crew* crew : crews_) crew->unblock(patience);
  }

  std::vector<Crew*> crews_;
};

}  // namespace windrow
