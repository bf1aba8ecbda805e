// A waiting thread leaves the slots of its ops to other threads.
#pragma once

#include "policy/slots.h"
#include "record/running.h"

namespace windrow {

/// While a SlotsFree exists, the ops that run on this thread leave their slots to others.
class SlotsFree {
 public:
  /// If no thread would be left to run ready ops: Error is thrown (`refuse`), or the ops keep their slots.
  enum class IfNobodyIsLeft { refuse, keep_them };

  explicit SlotsFree(IfNobodyIsLeft then = IfNobodyIsLeft::refuse) {
    try {
      for (Running* frame = Running::innermost(); frame != Running::floor(); frame = frame->outer) {
        if (!frame->has_slot()) continue;
        frame->slots->block();
        ++freed_;
      }
    } catch (const Error&) {
      take_back();
      if (then == IfNobodyIsLeft::refuse) throw;
      kept_ = true;
    }
  }
  /// For a wait: the thread that grants the wait takes the slot back.
  SlotsFree(Waiter& waiter, IfNobodyIsLeft then) : SlotsFree(then) {
    Running* const frame = Running::innermost();
    // If several ops have left their slots, this thread takes them back one after the other.
    if (freed_ != 1 || frame->slots == nullptr || !frame->slots->may_unblock_other()) return;
    waiter_ = &waiter;
    waiter.left = frame->slots;
  }
  ~SlotsFree() {
    if (waiter_ != nullptr && waiter_->left.exchange(nullptr) == nullptr) {
      waiter_->granted.wait(std::nullopt);  // the grant is imminent
      freed_ = 0;
    }
    take_back();
  }
  /// Whether the ops have kept their slots.
  bool kept() const { return kept_; }
  /// Called when the wait is given up.
  void let_others_in() const {
    int left = freed_;
    for (Running* frame = Running::innermost(); left > 0; frame = frame->outer) {
      if (!frame->has_slot()) continue;
      frame->slots->let_others_in();
      --left;
    }
  }
  SlotsFree(const SlotsFree&) = delete;
  SlotsFree& operator=(const SlotsFree&) = delete;

 private:
  void take_back() {
    // Waiting for the turns of several serial engines in sequence could complete a cycle of waiting threads.
    const auto patience = freed_ == 1 ? Slots::Patience::wait_for_turn : Slots::Patience::give_up_if_taken;
    for (Running* frame = Running::innermost(); freed_ > 0; frame = frame->outer) {
      if (!frame->has_slot()) continue;
      frame->slots->unblock(patience);
      --freed_;
    }
  }

  const InsideWait inside_;  // ends after the slots are taken back
  int freed_ = 0;            // how many of the innermost frames with a slot have left it
  bool kept_ = false;
  Waiter* waiter_ = nullptr;  // lets the granting thread take the slot back
};

}  // namespace windrow
