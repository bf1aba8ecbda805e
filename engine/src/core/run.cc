// The back of the engine: runs and finishes ready ops.
#include "core/core.h"
#include "core/entry.h"
#include "graph/launch.h"
#include "process/exit.h"

namespace windrow {
namespace {

/// The most ops that a thread runs in a row, each made ready by its predecessor, before other ready ops get a turn.
constexpr unsigned most_runs_in_a_row = 64;

/// Whether the op is a launch's op with a function, and ends no variable.
bool is_plain_node(OpRecord& op) { return op.body() == OpRecord::Body::node && op.node().node->function != nullptr; }

/// False for a heal, whose op has no function.
bool may_be_called_off(OpRecord& op) {
  if (op.body() == OpRecord::Body::node) return !op.ends_variable() && op.node().node->op->kind != OpRecord::Body::none;
  return op.body() == OpRecord::Body::function || op.body() == OpRecord::Body::async;
}

}  // namespace

Back::Back(Core& core)
    : detours(core.options.check ? unsigned{by_check} : 0U),
      failures(core.number),
      access_check(core.options.check ? std::make_unique<AccessCheck>() : nullptr),
      core_(core),
      pool_for_each_lane_(core.options.policy == Policy::per_device),
      policy(make_policy({.options = core.options,
                          .ports = core.front.ports,
                          .run = [this](OpRecord& op, Slots& slots) { run(op, &slots); },
                          .out_of_work =
                              [&core] {
                                if (core.monitor.trace.on()) core.monitor.rest_traced();
                                core.waits.tell_if_idle();
                              }})) {}

void Back::run(OpRecord& first, Slots* slots) noexcept {
  if (!DenormalsScope::is_in(core_.options.denormals)) [[unlikely]] {  // a thread of the program or another engine
    const DenormalsScope denormals(core_.options.denormals);
    return run(first, slots);
  }
  OpsInARow row{.slots = slots, .goes_on = slots != nullptr && slots->goes_on(), .port = core_.front.ports.mine()};
  OpRecord* op = &first;
  for (;; ++row.runs) {
    op = run_one(*op, row);
    if (op == nullptr) return;
    if (!gives_way(row)) [[likely]]
      continue;
    // If no other op is ready at the end of a row, the thread continues, so that the ops' data stays in its caches.
    if (slots->wants_thread_back() || slots->work_in_sight()) break;
    row.runs = 0;
  }
  op->set_stage(OpRecord::Stage::queued);
  policy->add(*op);
  if (row.runs == most_runs_in_a_row) slots->end_row();
}

inline bool Back::gives_way(const OpsInARow& row) const {
  return row.runs == most_runs_in_a_row || row.slots->wants_thread_back();
}

[[gnu::always_inline]] inline OpRecord* Back::run_one(OpRecord& op, OpsInARow& row) {
  op.set_stage(OpRecord::Stage::runs);
  const unsigned reasons = detours;
  if ((reasons == 0 || (reasons == by_ordered_lanes && is_apart_from_lanes(op))) && !failures.any_poison()) [[likely]] {
    if (op.is_plain_function()) return run_function(op, row);
    if (is_plain_node(op)) return run_nodes(op, row);
  }
  return run_detoured(op, row);
}

OpRecord* Back::run_detoured(OpRecord& op, OpsInARow& row) {
  if ((detours & by_exit) != 0) {
    op.set_stage(OpRecord::Stage::queued);
    stay_unless_exiting();
    op.set_stage(OpRecord::Stage::runs);
  }
  const Begin begin{row.slots, core_.monitor.begin_traced(row.slots)};
  if (detours != by_trace || failures.any_poison()) return run_with_care(op, begin);
  // Without `goes_on`, so that the paths below return after one op; go_on() chooses the next one.
  OpsInARow traced{.slots = row.slots, .goes_on = false, .port = row.port, .begun = begin.begun};
  if (op.is_plain_function()) return run_function(op, traced);
  if (is_plain_node(op)) return run_nodes(op, traced);
  return run_with_care(op, begin);
}

[[gnu::always_inline]] inline OpRecord* Back::run_function(OpRecord& op, OpsInARow& row) {
  try {
    const Running frame(core_, op, row.slots);
    op.call(row.context);
    op.end_function();  // destroys the captures before any successor runs
  } catch (...) {
    return fail(op, row);
  }
  if (row.begun != 0) core_.monitor.record_plain(op, row);
  OpRecord* next = nullptr;
  ReadyList others;
  op.set_id(0);
  Dep::leave(
      op,
      [](Dep::Access& access) {
        if (access.exclusive()) count_version(var_of(access));
      },
      [&](OpRecord& ready) { may_be_next(ready, next, row) ? void(next = &ready) : others.push(ready); },
      [&](OpRecord& ended) { core_.front.records.free(row.port.records, &ended); });
  return end_plain(next, others, row);
}

[[gnu::noinline]] OpRecord* Back::run_nodes(OpRecord& first, OpsInARow& row) {
  GraphLaunch& launch = *first.node().launch;
  const PlanNode* node = first.node().node;
  for (OpRecord* op = &first;; ++row.runs) {
    try {
      const Running frame(core_, *op, row.slots);
      (*node->function)(row.context);
    } catch (...) {
      return fail(*op, row);
    }
    if (row.begun != 0) core_.monitor.record_plain(*op, row);
    for (VarState* const var : std::span(node->written, node->written_count)) count_version(*var);
    ReadyList others;
    if (node->gate_count > 0 || node->successor_count == 0) {
      core_.launches.leave_node(*op, others);
      return end_plain(nullptr, others, row);
    }
    op->end_node(node->awaits);
    op = nullptr;
    const PlanNode *const nodes = node - node->number, *next = nullptr;
    const auto grant = [&](PlanNode::Successor successor) {
      OpRecord* const ready = launch.grant(successor);
      if (ready == nullptr) return;
      const PlanNode& of = nodes[successor.node];
      if (op == nullptr && row.goes_on && of.function != nullptr && (!has_ordered() || is_apart_from_lanes(*ready))) {
        op = ready;
        next = &of;
      } else {
        others.push(*ready);
      }
    };
    // After the last grant the launch may be gone, unless a successor was chosen.
    const std::span successors(node->successors, node->successor_count);
    grant(node->first_successor);
    for (std::size_t i = 1; i < successors.size(); ++i) grant(successors[i]);
    if (op == nullptr || !others.empty() || row.port.ended != nullptr) {
      return end_plain(op, others, row);
    }
    Port::add(row.port.left, 1);
    op->set_stage(OpRecord::Stage::runs);  // before the detours are read; see rest_at_exit()
    if (detours != 0 || failures.any_poison() || gives_way(row)) return op;
    node = next;
  }
}

inline bool Back::may_be_next(OpRecord& op, const OpRecord* next, const OpsInARow& row) const {
  return next == nullptr && row.goes_on && is_plainly_ready(op) && op.priority == 0 &&
         (!pool_for_each_lane_ || row.slots->goes_on_with(op.info().lane));
}

[[gnu::always_inline]] inline OpRecord* Back::end_plain(OpRecord* next, ReadyList& others, OpsInARow& row) {
  if (!others.empty() || row.port.ended != nullptr) next = go_on(next, others, row.slots);
  Port::add(row.port.left, 1);
  if (!row.goes_on) core_.waits.tell_if_idle();  // other threads do so when they run out of work
  return next;
}

OpRecord* Back::fail(OpRecord& op, const OpsInARow& row) {
  const Ending ending{
      .outcome = Outcome::failed, .error = std::current_exception(), .begun = row.begun, .slots = row.slots};
  {
    const Running frame(core_, op, row.slots);
    op.end_body();
  }
  return finish(op, ending);
}

OpRecord* Back::run_with_care(OpRecord& op, const Begin& begin) {
  const auto [slots, begun] = begin;
  if (op.body() == OpRecord::Body::captures) return core_.lanes.end_captures(op, slots);
  const bool left_behind = (detours & by_leak) != 0;
  const OpInfo& info = op.info();
  if (op.is_async() && op.async().left_to_engine) return finish_async(op, slots);
  if (left_behind) op.abandon_body();
  FailurePtr poison = first_poison(op);
  const bool skips = poison && !info.run_always;
  const bool called_off =
      !skips && (left_behind || (core_.life.gives_up() && !info.run_always && may_be_called_off(op)));
  if (op.is_async() && !skips && !called_off) return run_async(op, begin, std::move(poison));
  Ending ending{.outcome = skips ? Outcome::skipped : Outcome::ran,
                .poison = std::move(poison),
                .error = called_off ? called_off_ : nullptr,
                .begun = begun,
                .slots = slots};
  const bool checked = access_check && !skips && !called_off;
  if (checked) begin_check(op);
  const bool issues = info.lane->ordered && !skips && !called_off;
  OpRecord* keeper = nullptr;
  if (issues) ending.error = begin_issue(op, keeper);
  const bool runs = !skips && !ending.error;
  {
    const Running frame(core_, op, slots);
    if (runs) ending.error = invoke(op, ending.poison);
    if (issues && runs) {
      ending.mark = leave_point(op);
      std::exception_ptr error = info.lane->ordered->leave();
      if (!ending.error) ending.error = std::move(error);
      if (keeper != nullptr) {
        core_.lanes.keep(*keeper, op.take_captures(), *info.lane, ending.mark->point, core_.front.ports.mine());
      } else if (core_.callers_run || (op.after_end && op.has_captures())) {
        // A serial engine runs each op to its end, on a device as on the host. After the engine's end no thread is left
        // that could end the captures later.
        core_.waits.reach(ending.mark->point);
      }
    }
    op.end_body();  // destroys the captures before any successor runs
  }
  if (ending.error) ending.outcome = Outcome::failed;
  if (checked) {
    end_check(op, ending.error);
    access_check->let_go(op, AccessCheck::End::of_function);
    if (ending.error) ending.outcome = Outcome::failed;
  }
  return finish(op, ending);
}

void Back::begin_check(OpRecord& op) {
  if (op.ends_variable()) access_check->forget(var_of(op.touches().front()));
  access_check->begin(op);
}

void Back::end_check(OpRecord& op, std::exception_ptr& error) {
  std::exception_ptr offence = access_check->end(op);
  if (!error) error = std::move(offence);
}

std::exception_ptr Back::invoke(OpRecord& op, const FailurePtr& poison) {
  try {
    switch (op.body()) {
      case OpRecord::Body::function: {
        OpContext context;
        context.failure_ = poison;
        context.lane_ = op.info().lane->ordered.get();
        op.call(context);
        break;
      }
      case OpRecord::Body::async:
        op.async().function(OnComplete(core_, op));
        break;
      case OpRecord::Body::node:
        core_.launches.invoke_node(op, poison);
        break;
      default:  // without a function
        break;
    }
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

std::exception_ptr Back::begin_issue(OpRecord& op, OpRecord*& keeper) noexcept {
  try {
    if (op.info().lane->closed) throw op.info().lane->removed_error();
    reserve_marks(op, core_.lanes.count());
    const bool ends_here = !op.is_async() && (core_.callers_run || op.after_end);
    if (op.has_captures() && !ends_here) {
      Port& port = core_.front.ports.mine();
      const Turnstile::Pass pass(port.entry);  // a search of all records keeps threads from making records
      keeper = &core_.lanes.make_keeper(port);
    }
  } catch (...) {
    return std::current_exception();
  }
  Lane& own = *op.info().lane->ordered;
  own.enter();
  for_each_mark(op, [&](const Mark& mark, IfFailed if_failed) {
    if (mark.point.lane != &own && own.can_wait_for(*mark.point.lane)) own.wait(mark.point, if_failed);
  });
  return nullptr;
}

Mark Back::leave_point(OpRecord& op) { return {op.info().lane->record(), op.id(), &op.info()}; }

template <class Settle>
void Back::leave(OpRecord& op, ReadyList& ready, Settle&& settle) {
  if (op.body() == OpRecord::Body::node) {
    for (Dep::Access& access : op.touches()) settle(access);
    return core_.launches.leave_node(op, ready);
  }
  core_.front.leave(op, ready, settle);
}

OpRecord* Back::finish(OpRecord& op, const Ending& ending) noexcept {
  FailurePtr failure;
  if (ending.outcome == Outcome::skipped) {
    failure = FailureLog::caused(Failure::Kind::skipped, op.info(), ending.poison, changes_of(op));
    ++skipped;
  } else if (ending.outcome == Outcome::failed) {
    failure = failures.thrown(op.info(), ending.error, changes_of(op));
    ++(failure->kind == Failure::Kind::cancelled ? cancelled : failed);
  }
  if (ending.begun != 0) core_.monitor.record(op, ending, failure);
  LaneState& lane = *op.info().lane;
  const bool keeps_lane = op.after_end && ending.slots == nullptr;  // see admit()
  VarState* ended = op.retires() ? &var_of(op.accesses().front()) : nullptr;
  ReadyList ready;
  {
    const FailureLog::Hold hold(failure);
    if (op.body() != OpRecord::Body::node) op.set_id(0);
    if (op.commutes()) {
      // Before end_turns(), while the op still has exclusive access to these variables.
      for (Dep::Access& access : op.accesses()) {
        if (access.commutes()) settle_access(op, access, ending, failure);
      }
      end_turns(op, ready);
    }
    leave(op, ready, [&](Dep::Access& access) {
      if (!access.commutes()) settle_access(op, access, ending, failure);
    });
  }
  if (ended != nullptr) core_.front.free(*ended);
  // Ops that are ready now join those that wait for the lane, before the lane takes the earliest push of all.
  ReadyList beside;
  while (OpRecord* const each = lane.ordered ? ready.pop() : nullptr) {
    if (is_plainly_ready(*each) || may_run(*each, ready)) beside.push(*each);
  }
  // Successive ops of a lane stay on one thread, since the driver's data for the queue is in its core's caches.
  OpRecord* next = lane.ordered && !keeps_lane ? lane.release() : nullptr;
  if (next != nullptr && !may_go_on(*next, ending.slots)) policy->add(*std::exchange(next, nullptr));
  while (OpRecord* const each = beside.pop()) {
    if (next == nullptr && may_go_on(*each, ending.slots)) {
      next = each;
    } else {
      policy->add(*each);
    }
  }
  next = go_on(next, ready, ending.slots);
  one_less_pending(core_.front.ports.mine());
  return next;
}

void Back::settle_access(OpRecord& op, Dep::Access& access, const Ending& ending, const FailurePtr& failure) {
  VarState& var = var_of(access);
  const Outcome outcome = ending.outcome;
  if (access.writes()) {
    if (outcome != Outcome::skipped && !(failure && failure->kind == Failure::Kind::cancelled)) {
      count_version(var);
    }
    if (outcome == Outcome::failed || (outcome == Outcome::skipped && !var.poison)) failures.poison(var, failure);
    if (outcome == Outcome::ran && access.kind() == AccessKind::overwrite) failures.clear(var);
  }
  if (has_ordered()) settle_marks(op, access, ending);
  if (op.ends_variable()) {
    failures.clear(var);
    drop_marks(var);
    var.version.store(0, std::memory_order_release);
  }
}

void Back::settle_marks(OpRecord& op, Dep::Access& access, const Ending& ending) {
  VarState& var = var_of(access);
  std::lock_guard lock(var.residue_lock);
  if (ending.mark) {
    leave_mark(var, access.kind(), *ending.mark);
  } else if (ending.outcome != Outcome::skipped && !op.info().lane->ordered && !op.lost) {
    clear_marks(var, access.kind());
  }
}

FailurePtr Back::first_poison(OpRecord& op) {
  FailurePtr lost = op.lost ? take_lost(op) : nullptr;
  if (failures.any_poison()) {
    for (const Dep::Access& access : op.touches()) {
      const FailurePtr& poison = var_of(access).poison;
      if (poison && access.kind() != AccessKind::overwrite) return poison;
    }
  }
  return lost;
}

FailurePtr Back::take_lost(OpRecord& op) {
  MutexLock lock(point_mutex);
  auto found = lost_.extract(&op);
  return found ? std::move(found.mapped()) : failures.undescribed();
}

void Back::one_less_pending(Port& port) {
  Port::add(port.left, 1);
  if (!policy->on_worker()) core_.waits.tell_if_idle();
}

}  // namespace windrow
