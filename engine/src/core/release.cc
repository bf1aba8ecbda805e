// Moves granted ops on. An op awaits the points of lanes and its turn; then it goes to the policy, or is the next op of
// the thread that granted it.
#include <new>

#include "core/core.h"
#include "core/entry.h"

namespace windrow {

void Back::release_all(ReadyList& ready) noexcept {
  while (OpRecord* op = ready.pop()) release(*op, ready);
}

void Back::release(OpRecord& op) noexcept {
  if (is_plainly_ready(op)) return policy->add(op);
  ReadyList ready;
  release(op, ready);
  release_all(ready);
}

void Back::release(OpRecord& op, ReadyList& ready) noexcept {
  if (is_plainly_ready(op) || may_run(op, ready)) policy->add(op);
}

OpRecord* Back::go_on(OpRecord* next, ReadyList& others, Slots* slots) noexcept {
  while (OpRecord* op = others.pop()) {
    if (!is_plainly_ready(*op) && !may_run(*op, others)) continue;
    if (next == nullptr && may_go_on(*op, slots)) {
      next = op;
    } else {
      policy->add(*op);
    }
  }
  Port& port = core_.front.ports.mine();
  if (port.ended == nullptr) return next;
  if (next != nullptr) policy->add(*next);  // destructors that run at the end of a launch may wait for it
  core_.launches.end_launches(port, slots);
  return nullptr;
}

bool Back::may_run(OpRecord& op, ReadyList& ready) noexcept {
  if (op.body() == OpRecord::Body::gate) {
    core_.launches.open_gate(op, ready);
  } else if (op.body() == OpRecord::Body::fence) {
    end_fence(op, ready);
  } else if (op.is_wait()) {
    core_.waits.end_wait(op, ready);
  } else if ((!op.commutes() || take_turns(op, ready)) && (!has_ordered() || points_reached(op))) {
    return admit(op);
  }
  return false;
}

bool Back::points_reached(OpRecord& op) {
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
      of->lane->core->back.point_reached({op_of_mark, static_cast<IfFailed>(who & bit), *of}, error);
    });
  });
  return were_last_points(op, most - awaited + 1);
}

bool Back::were_last_points(OpRecord& op, std::int32_t points) {
  if (op.pending.fetch_sub(points) != OpRecord::awaiting(points)) return false;
  op.set_stage(OpRecord::Stage::queued);
  return true;
}

void Back::point_reached(const PointAwaited& awaited, const std::exception_ptr& error) noexcept {
  const Visit visit(core_);
  OpRecord& op = awaited.op;
  if (error && awaited.if_failed == IfFailed::fail) {
    FailurePtr failure = lost(awaited.left_by, error);
    MutexLock lock(point_mutex);
    op.lost = true;
    try {
      lost_.try_emplace(&op, std::move(failure));
    } catch (const std::bad_alloc&) {
    }
  }
  if (were_last_points(op, 1) && admit(op)) policy->add(op);
}

FailurePtr Back::lost(const OpInfo& of, const std::exception_ptr& error) noexcept {
  return FailureLog::caused(Failure::Kind::lost, of, of.lane->failure(failures, error));
}

bool Back::admit(OpRecord& op) {
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

void Back::end_fence(OpRecord& op, ReadyList& ready) noexcept {
  op.end_body();
  if (core_.monitor.trace.on())
    core_.monitor.trace.record(core_.front.ports.mine(), op, {.kind = TraceRecord::Kind::wait});
  op.set_id(0);
  core_.front.leave(op, ready);
}

}  // namespace windrow
