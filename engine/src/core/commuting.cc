// Turns: ops that commute on a variable, and have been granted it, run one at a time, in an unspecified order.
//
// An op that waits for a turn holds none. It takes all turns that it needs in one attempt; or it takes none, is kept at
// the variable where the attempt failed, and retries when the turn there becomes free. So no cycle of waits can arise.
#include <mutex>
#include <utility>

#include "core/back.h"

namespace windrow {
namespace {

/// Puts the op behind all ops that wait for the variable's turn.
void keep_for_turn(VarState& var, OpRecord& op) {
  if (var.last_for_turn == nullptr) {
    op.next_ready = &op;
  } else {
    op.next_ready = std::exchange(var.last_for_turn->next_ready, &op);
  }
  var.last_for_turn = &op;
}

/// Takes the variable's turn if it is free. Returns whether it was.
bool take_turn(VarState& var) {
  std::lock_guard lock(var.residue_lock);
  return !std::exchange(var.turn_taken, true);
}

/// Frees the variable's turn. Returns the first op that waits for it, which must now retry; null if there is none.
OpRecord* end_turn(VarState& var) {
  std::lock_guard lock(var.residue_lock);
  var.turn_taken = false;
  Dep::Op* const last = var.last_for_turn;
  if (last == nullptr) return nullptr;
  Dep::Op* const first = last->next_ready;
  first == last ? var.last_for_turn = nullptr : last->next_ready = first->next_ready;
  return static_cast<OpRecord*>(first);
}

/// Keeps the op at the variable until the turn there becomes free. Does nothing and returns false if it is free.
bool wait_for_turn(VarState& var, OpRecord& op) {
  std::lock_guard lock(var.residue_lock);
  if (!var.turn_taken) return false;
  keep_for_turn(var, op);
  return true;
}

/// Takes all of the op's turns and returns null, or takes none and returns a variable whose turn was taken.
VarState* try_turns(OpRecord& op, ReadyList& others) {
  for (Dep::Access& access : op.accesses()) {
    if (!access.commutes() || take_turn(var_of(access))) continue;
    for (Dep::Access& taken : std::span(op.accesses().data(), &access)) {
      if (!taken.commutes()) continue;
      if (OpRecord* const other = end_turn(var_of(taken))) others.push(*other);
    }
    return &var_of(access);
  }
  return nullptr;
}

}  // namespace

bool take_turns(OpRecord& op, ReadyList& others) noexcept {
  while (VarState* const taken = try_turns(op, others)) {
    if (wait_for_turn(*taken, op)) return false;  // another thread may already run the op
  }
  return true;
}

void end_turns(OpRecord& op, ReadyList& others) noexcept {
  for (Dep::Access& access : op.accesses()) {
    if (!access.commutes()) continue;
    if (OpRecord* const other = end_turn(var_of(access))) others.push(*other);
  }
}

}  // namespace windrow
