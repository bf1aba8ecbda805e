// Turns: of ops that commute at a variable, and have been granted it, one runs at a time, in no certain order.
//
// An op that waits for a turn holds none: it takes all that it needs at one try, or is kept at the variable where it
// failed, and tried again when the turn there is free. So nobody waits in a ring.
#include <mutex>
#include <utility>

#include "core/core.h"

namespace windrow {
namespace {

/// Behind all that wait there.
void keep_for_turn(VarState& var, OpRecord& op) {
  if (var.last_for_turn == nullptr) {
    op.next_ready = &op;
  } else {
    op.next_ready = std::exchange(var.last_for_turn->next_ready, &op);
  }
  var.last_for_turn = &op;
}

/// Whether it was free.
bool take_turn(VarState& var) {
  std::lock_guard lock(var.residue_lock);
  return !std::exchange(var.turn_taken, true);
}

/// Returns the first one that waits there, to be tried again; null if there is none.
OpRecord* end_turn(VarState& var) {
  std::lock_guard lock(var.residue_lock);
  var.turn_taken = false;
  Dep::Op* const last = var.last_for_turn;
  if (last == nullptr) return nullptr;
  Dep::Op* const first = last->next_ready;
  first == last ? var.last_for_turn = nullptr : last->next_ready = first->next_ready;
  return static_cast<OpRecord*>(first);
}

/// False if the turn there is free.
bool wait_for_turn(VarState& var, OpRecord& op) {
  std::lock_guard lock(var.residue_lock);
  if (!var.turn_taken) return false;
  keep_for_turn(var, op);
  return true;
}

/// Takes the op's turns, and returns null; or takes none, and returns where one was taken.
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

bool Core::take_turns(OpRecord& op, ReadyList& others) noexcept {
  while (VarState* const taken = try_turns(op, others)) {
    if (wait_for_turn(*taken, op)) return false;  // another thread may run it already
  }
  return true;
}

void Core::end_turns(OpRecord& op, ReadyList& others) noexcept {
  for (Dep::Access& access : op.accesses()) {
    if (!access.commutes()) continue;
    if (OpRecord* const other = end_turn(var_of(access))) others.push(*other);
  }
}

}  // namespace windrow
