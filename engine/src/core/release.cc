// Moves granted ops on. An op awaits the points of lanes and its turn; then it goes to the policy, or is the next op of
// the thread that granted it.
#include <new>

#include "core/core.h"

namespace windrow {

void Core::release_all(ReadyList& ready) noexcept {
  while (OpRecord* op = ready.pop()) release(*op, ready);
}

void Core::release(OpRecord& op) noexcept {
  if (is_plainly_ready(op)) return policy_->add(op);
  ReadyList ready;
  release(op, ready);
  release_all(ready);
}

void Core::release(OpRecord& op, ReadyList& ready) noexcept {
  if (is_plainly_ready(op) || may_run(op, ready)) policy_->add(op);
}

OpRecord* Core::go_on(OpRecord* next, ReadyList& others, Slots* slots) noexcept {
  while (OpRecord* op = others.pop()) {
    if (!is_plainly_ready(*op) && !may_run(*op, others)) continue;
    if (next == nullptr && may_go_on(*op, slots)) {
      next = op;
    } else {
      policy_->add(*op);
    }
  }
  Port& port = ports_.mine();
  if (port.ended == nullptr) return next;
  if (next != nullptr) policy_->add(*next);  // destructors that run at the end of a launch may wait for it
  end_launches(port, slots);
  return nullptr;
}

bool Core::may_run(OpRecord& op, ReadyList& ready) noexcept {
  if (op.body() == OpRecord::Body::gate) {
    open_gate(op, ready);
  } else if (op.body() == OpRecord::Body::fence) {
    end_fence(op, ready);
  } else if (op.is_wait()) {
    end_wait(op, ready);
  } else if ((!op.commutes() || take_turns(op, ready)) && (!has_ordered_ || points_reached(op))) {
    return admit(op);
  }
  return false;
}

bool Core::points_reached(OpRecord& op) {
  const Lane* own = op.info().lane->ordered.get();
  const auto await = [&](const Mark& mark) {
    const Lane* other = mark.point.lane;
    return own == nullptr || (own != other && !own->can_wait_for(*other));
  };
  std::int32_t most = 0;  // an upper bound, since a concurrent reader may remove a mark
  for_each_mark(op, [&](const Mark& mark, IfFailed) { most += await(mark); });
  if (most == 0) return true;
  // One more than awaited, so that this function decides if all callbacks come at once.
  op.pending.store(OpRecord::awaiting(most + 1));
  std::int32_t awaited = 0;
  for_each_mark(op, [&](const Mark& mark, IfFailed if_failed) {
    if (!await(mark)) return;
    ++awaited;
    // The capture is two words, for which std::function needs no memory. The low bit of the op's address is IfFailed.
    const auto who = reinterpret_cast<std::uintptr_t>(&op) | static_cast<std::uintptr_t>(if_failed);
    mark.point.lane->when_reached(mark.point, [who, of = mark.info](const std::exception_ptr& error) {
      constexpr std::uintptr_t bit = 1;
      auto& op_of_mark = *reinterpret_cast<OpRecord*>(who & ~bit);
      of->lane->core->point_reached({op_of_mark, static_cast<IfFailed>(who & bit), *of}, error);
    });
  });
  return were_last_points(op, most - awaited + 1);
}

bool Core::were_last_points(OpRecord& op, std::int32_t points) {
  if (op.pending.fetch_sub(points) != OpRecord::awaiting(points)) return false;
  op.set_stage(OpRecord::Stage::queued);
  return true;
}

void Core::point_reached(const PointAwaited& awaited, const std::exception_ptr& error) noexcept {
  const Visit visit(*this);
  OpRecord& op = awaited.op;
  if (error && awaited.if_failed == IfFailed::fail) {
    FailurePtr failure = lost(awaited.left_by, error);
    MutexLock lock(point_mutex_);
    op.lost = true;
    try {
      lost_.try_emplace(&op, std::move(failure));
    } catch (const std::bad_alloc&) {
    }
  }
  if (were_last_points(op, 1) && admit(op)) policy_->add(op);
}

FailurePtr Core::lost(const OpInfo& of, const std::exception_ptr& error) noexcept {
  return FailureLog::caused(Failure::Kind::lost, of, of.lane->failure(failures_, error));
}

bool Core::admit(OpRecord& op) {
  LaneState& lane = *op.info().lane;
  const bool after_end = op.after_end;
  if (!lane.admit(op)) return false;
  if (!after_end) return true;
  // No thread of the engine is left. On an ordered lane this thread also runs ops that other threads add meanwhile.
  for (OpRecord* next = &op; next != nullptr;) {
    const bool gives_lane_back = !next->after_end;
    run(*next, nullptr);
    next = gives_lane_back ? nullptr : lane.release(LaneState::Room::ignore);
  }
  return false;
}

void Core::end_fence(OpRecord& op, ReadyList& ready) noexcept {
  op.end_body();
  if (trace_.on()) trace_.record(ports_.mine(), op, {.kind = TraceRecord::Kind::wait});
  op.set_id(0);
  leave(op, ready, [](Dep::Access&) {});
}

OpRecord& Core::make_fence(Port& port, Dep::Var& var) {
  OpRecord& fence = *records_.make(port.records, 1, 0);
  Dep::place(fence, std::size_t{1}, [&](std::size_t) { return Dep::Access(var, 0, AccessKind::mutate); });
  fence.begin(fence_, 0, false);
  fence.set_fence();
  fence.set_id(OpRecord::gate_id);
  return fence;
}

void Core::end_wait(OpRecord& op, ReadyList& ready) noexcept {
  const std::shared_ptr<Waiter> waiter = op.waiter();
  waiter->failure = first_poison(op);
  if (has_ordered_) {
    // The waiting thread awaits the points: a record that stayed in the chain meanwhile would keep other ops from being
    // issued.
    for_each_mark(op, [&](const Mark& mark, IfFailed if_failed) { waiter->points.push_back({mark, if_failed}); });
  }
  op.end_body();
  if (trace_.on()) trace_.record(ports_.mine(), op, {.kind = TraceRecord::Kind::wait});
  op.set_id(0);
  leave(op, ready, [](Dep::Access&) {});
  if (Slots* const slots = waiter->left.exchange(nullptr)) slots->unblock_other();
  waiter->granted.set();
  Port& port = ports_.mine();
  Port::add(port.waits_left, 1);
  one_less_pending(port);
}

}  // namespace windrow
