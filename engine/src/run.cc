// The back of the engine: ready ops are dispatched, run, and finished.
#include <new>

#include "core.h"
#include "entry.h"

namespace windrow {

void Core::release_all(ReadyList& ready) noexcept {
  while (OpRecord* op = ready.pop()) release(*op, ready);
}

void Core::release(OpRecord& op) noexcept {
  if (!has_ordered_ && !op.after_end && !op.is_wait()) return policy_->add(op);
  ReadyList ready;
  release(op, ready);
  release_all(ready);
}

void Core::release(OpRecord& op, ReadyList& ready) noexcept {
  if (op.body() == OpRecord::Body::gate) {
    open_gate(op, ready);
  } else if (op.is_wait()) {
    end_wait(op, ready);
  } else if (!has_ordered_ || points_reached(op)) {
    dispatch(op);
  }
}

bool Core::points_reached(OpRecord& op) {
  const Lane* own = op.info().lane->ordered.get();
  const auto await = [&](const Mark& mark) {
    const Lane* other = mark.point.lane;
    return own == nullptr || (own != other && !own->can_wait_for(*other));
  };
  std::int32_t most = 0;  // a reader beside this one may take a mark away
  for_each_mark(op, [&](const Mark& mark, Dep::Access&) { most += await(mark); });
  if (most == 0) return true;
  // One more than awaited, so that the op goes on from here if all callbacks come at once.
  op.pending.store(OpRecord::awaiting(most + 1));
  std::int32_t awaited = 0;
  for_each_mark(op, [&](const Mark& mark, Dep::Access& access) {
    if (!await(mark)) return;
    ++awaited;
    // Two words, for which std::function needs no memory: the kind is in the low bits of the op's address.
    const auto who = reinterpret_cast<std::uintptr_t>(&op) | static_cast<std::uintptr_t>(access.kind());
    mark.point.lane->when_reached(mark.point, [who, of = mark.info](const std::exception_ptr& error) {
      constexpr std::uintptr_t kind_bits = 3;
      auto& op_of_mark = *reinterpret_cast<OpRecord*>(who & ~kind_bits);
      of->lane->core->point_reached({op_of_mark, static_cast<AccessKind>(who & kind_bits), *of}, error);
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
  if (error && awaited.kind != AccessKind::overwrite) {
    FailurePtr failure = lost(awaited.left_by, error);
    MutexLock lock(point_mutex_);
    op.lost = true;
    try {
      lost_.try_emplace(&op, std::move(failure));
    } catch (const std::bad_alloc&) {
    }
  }
  if (were_last_points(op, 1)) dispatch(op);
}

FailurePtr Core::lost(const OpInfo& of, const std::exception_ptr& error) noexcept {
  return FailureLog::caused(Failure::Kind::lost, of, of.lane->failure(failures_, error));
}

void Core::dispatch(OpRecord& op) {
  if (op.after_end) {
    run(op, nullptr);
  } else if (op.info().lane->admit(op)) {
    policy_->add(op);
  }
}

void Core::end_wait(OpRecord& op, ReadyList& ready) noexcept {
  const std::shared_ptr<Waiter> waiter = op.waiter();
  waiter->failure = first_poison(op);
  if (has_ordered_) {
    // Left to the thread that waits: what kept its place here meanwhile would keep others from being issued.
    for_each_mark(op, [&](const Mark& mark, Dep::Access& access) { waiter->points.push_back({mark, access.kind()}); });
  }
  op.end_body();
  if (trace_.on()) trace_.record(ports_.mine(), op, {.kind = TraceRecord::Kind::wait});
  op.set_id(0);
  leave(op, ready, [](Dep::Access&) {});
  waiter->granted.set();
  Port& port = ports_.mine();
  Port::add(port.waits_left, 1);
  one_less_pending(port);
}

std::exception_ptr Core::run_plain(OpRecord& op, Slots* slots) {
  const Running frame(*this, op, slots);
  std::exception_ptr error;
  try {
    OpContext context;
    op.call(context);
  } catch (...) {
    error = std::current_exception();
  }
  op.end_body();  // captures go before any successor runs
  return error;
}

void Core::finish_plain(OpRecord& op, Slots* slots) noexcept {
  Port& port = ports_.mine();
  Dep::Op* first = nullptr;
  Dep::Op** end = &first;
  op.set_id(0);
  Dep::leave(
      op,
      [&](Dep::Access& access) {
        if (!access.exclusive()) return;
        VarState& var = var_of(access);
        var.version.store(var.version.load(std::memory_order_relaxed) + 1, std::memory_order_release);
      },
      [&](Dep::Op& next) {
        *end = &next;
        end = &next.next_ready;
      },
      [&](OpRecord& ended) { records_.free(port.records, &ended); });
  *end = nullptr;
  while (first != nullptr) {
    Dep::Op* const next = first->next_ready;
    release(static_cast<OpRecord&>(*first));
    first = next;
  }
  Port::add(port.left, 1);
  // A worker tells when it has nothing more to do.
  if (options.policy != Policy::pool || slots == nullptr) tell_if_idle();
}

void Core::run(OpRecord& op, Slots* slots) noexcept {
  if (op.body() == OpRecord::Body::node) return run_nodes(op, slots);
  op.set_stage(OpRecord::Stage::runs);
  const bool plain = op.body() == OpRecord::Body::function && !op.retires() && !failures_.any_poison();
  if (plain && detours_ == 0) {
    std::exception_ptr error = run_plain(op, slots);
    if (!error) return finish_plain(op, slots);
    return finish(op, {.outcome = Outcome::failed, .error = std::move(error)});
  }
  const Begin begin{slots, begin_traced(slots)};
  if (plain && detours_ == by_trace) return run_traced(op, begin);
  run_with_care(op, begin);
}

void Core::run_with_care(OpRecord& op, const Begin& begin) {
  const auto [slots, begun] = begin;
  const OpInfo& info = op.info();
  if (op.is_async() && op.async().left_to_engine) return finish_async(op, slots);
  FailurePtr poison = first_poison(op);
  const bool skipped = poison && !info.run_always;
  if (op.is_async() && !skipped) return run_async(op, begin, std::move(poison));
  Ending ending{.outcome = skipped ? Outcome::skipped : Outcome::ran,
                .poison = std::move(poison),
                .begun = begun,
                .slots = slots};
  const bool checked = access_check_ && !skipped;
  if (checked) begin_check(op);
  {
    const Running frame(*this, op, slots);
    if (!skipped) ending.error = invoke(op, ending.poison);
    op.end_body();  // captures go before any successor runs
  }
  if (ending.error) ending.outcome = Outcome::failed;
  if (info.lane->ordered && !skipped) {
    ending.mark = leave_point(op);
    if (options.policy == Policy::serial) {
      // A serial engine runs a device as it runs the host: each op to its end.
      reach(ending.mark->point);
    }
  }
  if (checked) {
    end_check(op, ending.error);
    access_check_->let_go(op);
    if (ending.error) ending.outcome = Outcome::failed;
  }
  finish(op, ending);
}

void Core::begin_check(OpRecord& op) {
  if (op.ends_variable()) access_check_->forget(var_of(op.touches().front()));
  access_check_->begin(op);
}

void Core::end_check(OpRecord& op, std::exception_ptr& error) {
  std::exception_ptr offence = access_check_->end(op);
  if (!error) error = std::move(offence);
}

std::exception_ptr Core::invoke(OpRecord& op, const FailurePtr& poison) {
  try {
    if (op.info().lane->ordered && !op.is_async()) issue_waits(op);
    switch (op.body()) {
      case OpRecord::Body::function: {
        OpContext context;
        context.failure_ = poison;
        op.call(context);
        break;
      }
      case OpRecord::Body::declared: {
        OpContext context;
        context.failure_ = poison;
        op.declared().function(context);
        break;
      }
      case OpRecord::Body::async:
        op.async().function(OnComplete(*this, op));
        break;
      case OpRecord::Body::node:
        invoke_node(op, poison);
        break;
      case OpRecord::Body::none:
      case OpRecord::Body::wait:
      case OpRecord::Body::gate:
        break;
    }
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

void Core::issue_waits(OpRecord& op) {
  reserve_marks(op, lanes());
  Lane& own = *op.info().lane->ordered;
  for_each_mark(op, [&](const Mark& mark, Dep::Access&) {
    if (mark.point.lane != &own && own.can_wait_for(*mark.point.lane)) own.wait(mark.point);
  });
}

Mark Core::leave_point(OpRecord& op) { return {op.info().lane->record(), op.id(), &op.info()}; }

template <class Settle>
void Core::leave(OpRecord& op, ReadyList& ready, Settle&& settle) {
  if (op.body() == OpRecord::Body::node) {
    for (Dep::Access& access : op.touches()) settle(access);
    return leave_node(op, ready);
  }
  RecordPool::Cache& cache = ports_.mine().records;
  Dep::leave(
      op, settle, [&](OpRecord& next) { ready.push(next); }, [&](OpRecord& ended) { records_.free(cache, &ended); });
}

void Core::finish(OpRecord& op, const Ending& ending) noexcept {
  if (ending.begun != 0) record(op, ending);
  FailurePtr failure;
  if (ending.outcome == Outcome::skipped) {
    failure = FailureLog::caused(Failure::Kind::skipped, op.info(), ending.poison);
    ++skipped_;
  } else if (ending.outcome == Outcome::failed) {
    failure = failures_.thrown(op.info(), ending.error);
    ++(failure->kind == Failure::Kind::cancelled ? cancelled_ : failed_);
  }
  LaneState& lane = *op.info().lane;
  const bool after_end = op.after_end;
  VarState* ended = op.retires() ? &var_of(op.accesses().front()) : nullptr;
  ReadyList ready;
  {
    const FailureLog::Hold hold(failure);
    if (op.body() != OpRecord::Body::node) op.set_id(0);
    leave(op, ready, [&](Dep::Access& access) { settle_access(op, access, ending, failure); });
  }
  if (ended != nullptr) free(*ended);
  if (lane.ordered) {
    if (OpRecord* next = after_end ? nullptr : lane.release()) policy_->add(*next);
  }
  release_all(ready);
  Port& port = ports_.mine();
  if (port.ended != nullptr) end_launches(port, ending.slots);
  one_less_pending(port);
}

void Core::settle_access(OpRecord& op, Dep::Access& access, const Ending& ending, const FailurePtr& failure) {
  VarState& var = var_of(access);
  const Outcome outcome = ending.outcome;
  if (access.exclusive()) {
    if (outcome != Outcome::skipped && !(failure && failure->kind == Failure::Kind::cancelled)) {
      var.version.store(var.version.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }
    if (outcome == Outcome::failed || (outcome == Outcome::skipped && !var.poison)) failures_.poison(var, failure);
    if (outcome == Outcome::ran && access.kind() == AccessKind::overwrite) failures_.clear(var);
  }
  if (has_ordered_) settle_marks(op, access, ending);
  if (op.ends_variable()) {
    failures_.clear(var);
    var.residue.reset();
    var.version.store(0, std::memory_order_release);
  }
}

void Core::settle_marks(OpRecord& op, Dep::Access& access, const Ending& ending) {
  VarState& var = var_of(access);
  std::lock_guard lock(var.residue_lock);
  if (ending.mark) {
    if (var.residue) leave_mark(var, access.kind(), *ending.mark);
  } else if (ending.outcome != Outcome::skipped && !op.info().lane->ordered && !op.lost) {
    clear_marks(var, access.kind());
  }
}

FailurePtr Core::first_poison(OpRecord& op) {
  FailurePtr lost = op.lost ? take_lost(op) : nullptr;
  if (failures_.any_poison()) {
    for (const Dep::Access& access : op.touches()) {
      const FailurePtr& poison = var_of(access).poison;
      if (poison && access.kind() != AccessKind::overwrite) return poison;
    }
  }
  return lost;
}

FailurePtr Core::take_lost(OpRecord& op) {
  MutexLock lock(point_mutex_);
  auto found = lost_.extract(&op);
  return found ? std::move(found.mapped()) : failures_.undescribed();
}

void Core::one_less_pending(Port& port) {
  Port::add(port.left, 1);
  if (!policy_->on_worker()) tell_if_idle();
}

void Core::tell_if_idle() {
  // Read by a write, so that of this thread and one that comes to wait the later one sees what the earlier one did.
  if (idle_waiters_.fetch_add(0) == 0 || ports_.sums().pending != 0) return;
  MutexLock lock(idle_mutex_);
  idle_.notify_all();
}

void OpContext::throw_if_poisoned() const {
  if (!failure_) return;
  FailureLog::mark_reported({&failure_, 1});
  throw OpError({failure_});
}

}  // namespace windrow
