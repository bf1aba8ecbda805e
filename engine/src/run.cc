// The back of the engine: ready ops are dispatched, run, and finished.
#include "core.h"

namespace windrow {

class Core::Visit {
 public:
  explicit Visit(Core& core) : core_(core) { ++core_.visitors_; }
  ~Visit() { --core_.visitors_; }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

 private:
  Core& core_;
};

void Core::release_all(ReadyList& ready) {
  while (OpRecord* op = ready.pop()) release(*op, ready);
}

void Core::release(OpRecord& op) {
  if (!has_ordered_ && !op.after_end && !op.is_wait()) return policy_->add(op);
  ReadyList ready;
  release(op, ready);
  release_all(ready);
}

void Core::release(OpRecord& op, ReadyList& ready) {
  if (op.is_wait()) {
    end_wait(op, ready);
  } else if (!has_ordered_ || points_reached(op)) {
    dispatch(op);
  }
}

bool Core::points_reached(OpRecord& op) {
  std::vector<Awaited> awaited;
  const Lane* own = op.info().lane->ordered.get();
  for_each_mark(op, [&](const Mark& mark, AccessKind kind) {
    const Lane* other = mark.point.lane;
    if (own == nullptr || (own != other && !own->can_wait_for(*other))) awaited.push_back({mark, kind});
  });
  if (awaited.empty()) return true;
  // One more than awaited, so that the op goes on from here if all callbacks come at once.
  op.pending.store(OpRecord::awaiting(static_cast<std::int32_t>(awaited.size()) + 1));
  for (const Awaited& a : awaited) {
    a.mark.point.lane->when_reached(a.mark.point, [this, &op, a](std::exception_ptr error) {
      point_reached(op, a.mark, a.kind, std::move(error));
    });
  }
  return was_last_point(op);
}

bool Core::was_last_point(OpRecord& op) {
  if (op.pending.fetch_sub(1) != OpRecord::awaiting(1)) return false;
  op.set_stage(OpRecord::Stage::queued);
  return true;
}

void Core::point_reached(OpRecord& op, const Mark& mark, AccessKind kind, std::exception_ptr error) {
  const Visit visit(*this);
  if (error && kind != AccessKind::overwrite) {
    FailurePtr failure = lost(mark, error);
    MutexLock lock(point_mutex_);
    op.lost = true;
    lost_.try_emplace(&op, std::move(failure));
  }
  if (was_last_point(op)) dispatch(op);
}

FailurePtr Core::lost(const Mark& mark, const std::exception_ptr& error) {
  return FailureLog::caused(Failure::Kind::lost, *mark.info, mark.info->lane->failure(failures_, error));
}

void Core::dispatch(OpRecord& op) {
  if (op.after_end) {
    run(op, nullptr);
  } else if (op.info().lane->admit(op)) {
    policy_->add(op);
  }
}

void Core::end_wait(OpRecord& op, ReadyList& ready) {
  const std::shared_ptr<Waiter> waiter = op.waiter();
  waiter->failures = poisons(op);
  if (has_ordered_) {
    // Left to the thread that waits: what kept its place here meanwhile would keep others from being issued.
    for_each_mark(op, [&](const Mark& mark, AccessKind kind) { waiter->points.push_back({mark, kind}); });
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

void Core::finish_plain(OpRecord& op, Slots* slots) {
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

void Core::run(OpRecord& op, Slots* slots) {
  op.set_stage(OpRecord::Stage::runs);
  const bool plain = op.body() == OpRecord::Body::function && !op.retires() && !failures_.any_poison();
  if (plain && detours_ == 0) {
    std::exception_ptr error = run_plain(op, slots);
    if (!error) return finish_plain(op, slots);
    return finish(op, {.outcome = Outcome::failed, .error = std::move(error)});
  }
  const Ticks begun = begin_traced(slots);
  if (plain && detours_ == by_trace) return run_traced(op, slots, begun);
  const OpInfo& info = op.info();
  FailurePtr poison = first_poison(op);
  const bool skipped = poison && !info.run_always;
  if (op.body() == OpRecord::Body::async && !skipped) return run_async(op, {slots, begun}, std::move(poison));
  Ending ending{.outcome = skipped ? Outcome::skipped : Outcome::ran, .poison = std::move(poison), .begun = begun};
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
      std::exception_ptr error;
      wait_until_reached(ending.mark->point, std::nullopt, error);
    }
  }
  finish(op, ending);
}

void Core::run_async(OpRecord& op, Begin begin, FailurePtr poison) {
  const auto [slots, begun] = begin;
  AsyncBody& body = op.async();
  body.poison = std::move(poison);
  body.begun = begun;
  {
    const Running frame(*this, op, slots);
    body.error = invoke(op, body.poison);
    if (begun != 0) record_call(op, begun);
    op.set_stage(OpRecord::Stage::has_returned);
    if (!count_down(body)) return;  // its OnComplete finishes it, or has done so
  }
  finish_async(op, slots);
}

std::exception_ptr Core::invoke(OpRecord& op, const FailurePtr& poison) {
  try {
    if (op.info().lane->ordered) issue_waits(op);
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
      case OpRecord::Body::none:
      case OpRecord::Body::wait:
        break;
    }
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

void Core::issue_waits(OpRecord& op) {
  std::size_t lanes = 0;
  {
    MutexLock lock(table_mutex_);
    lanes = lanes_.size();
  }
  reserve_marks(op, lanes);
  Lane& own = *op.info().lane->ordered;
  for_each_mark(op, [&](const Mark& mark, AccessKind) {
    if (mark.point.lane != &own && own.can_wait_for(*mark.point.lane)) own.wait(mark.point);
  });
}

void Core::complete(OpRecord& op, std::exception_ptr outcome) {
  const Visit visit(*this);
  AsyncBody& body = op.async();
  body.outcome = std::move(outcome);
  if (count_down(body)) finish_async(op, nullptr);  // else its function still runs
}

bool Core::count_down(AsyncBody& body) { return body.parts.fetch_sub(1) == 1; }

void Core::finish_async(OpRecord& op, Slots* slots) {
  AsyncBody& body = op.async();
  Ending ending{.outcome = Outcome::ran,
                .poison = std::move(body.poison),
                .begun = body.begun,
                .kind = TraceRecord::Kind::async_op};
  // An exception of the function itself tells more than the dropped token it leaves behind.
  ending.error = body.error ? std::move(body.error) : std::move(body.outcome);
  if (ending.error) ending.outcome = Outcome::failed;
  {
    const Running frame(*this, op, slots);
    op.end_body();
  }
  if (op.info().lane->ordered) ending.mark = leave_point(op);
  finish(op, ending);
}

Mark Core::leave_point(OpRecord& op) { return {op.info().lane->record(), op.id(), &op.info()}; }

template <class Settle>
void Core::leave(OpRecord& op, ReadyList& ready, Settle&& settle) {
  RecordPool::Cache& cache = ports_.mine().records;
  Dep::leave(
      op, settle, [&](OpRecord& next) { ready.push(next); }, [&](OpRecord& ended) { records_.free(cache, &ended); });
}

void Core::finish(OpRecord& op, const Ending& ending) {
  if (ending.begun != 0) record(op, ending);
  FailurePtr failure;
  if (ending.outcome == Outcome::skipped) {
    failure = FailureLog::caused(Failure::Kind::skipped, op.info(), ending.poison);
    ++skipped_;
  } else if (ending.outcome == Outcome::failed) {
    failure = failures_.thrown(op.info(), ending.error);
    ++failed_;
  }
  LaneState& lane = *op.info().lane;
  const bool after_end = op.after_end;
  VarState* ended = op.retires() ? &var_of(op.accesses().front()) : nullptr;
  ReadyList ready;
  {
    const FailureLog::Hold hold(failure);
    op.set_id(0);
    leave(op, ready, [&](Dep::Access& access) { settle_access(op, access, ending, failure); });
  }
  if (ended != nullptr) free(*ended);
  if (lane.ordered) {
    if (OpRecord* next = after_end ? nullptr : lane.release()) policy_->add(*next);
  }
  release_all(ready);
  one_less_pending(ports_.mine());
}

void Core::settle_access(OpRecord& op, Dep::Access& access, const Ending& ending, const FailurePtr& failure) {
  VarState& var = var_of(access);
  const Outcome outcome = ending.outcome;
  if (access.exclusive()) {
    if (outcome != Outcome::skipped) {
      var.version.store(var.version.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    }
    if (outcome == Outcome::failed || (outcome == Outcome::skipped && !var.poison)) failures_.poison(var, failure);
    if (outcome == Outcome::ran && access.kind() == AccessKind::overwrite) failures_.clear(var);
  }
  if (has_ordered_) settle_marks(op, access, ending);
  if (op.retires()) {
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

std::vector<FailurePtr> Core::poisons(OpRecord& op) {
  std::vector<FailurePtr> result;
  for (const Dep::Access& access : op.accesses()) {
    const FailurePtr& poison = var_of(access).poison;
    if (poison && access.kind() != AccessKind::overwrite) result.push_back(poison);
  }
  return result;
}

FailurePtr Core::first_poison(OpRecord& op) {
  if (failures_.any_poison()) {
    for (const Dep::Access& access : op.accesses()) {
      const FailurePtr& poison = var_of(access).poison;
      if (poison && access.kind() != AccessKind::overwrite) return poison;
    }
  }
  if (!op.lost) return nullptr;
  MutexLock lock(point_mutex_);
  return std::move(lost_.extract(&op).mapped());
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

OnComplete& OnComplete::operator=(OnComplete&& other) noexcept {
  if (this != &other) {
    drop();
    core_ = std::exchange(other.core_, nullptr);
    op_ = std::exchange(other.op_, nullptr);
  }
  return *this;
}

OnComplete::~OnComplete() { drop(); }

void OnComplete::operator()(std::exception_ptr error) {
  if (op_ == nullptr) throw MisuseError("OnComplete was called before, or moved from; call each token once");
  std::exchange(core_, nullptr)->complete(*std::exchange(op_, nullptr), std::move(error));
}

FailurePtr OnComplete::failure() const { return op_ == nullptr ? nullptr : op_->async().poison; }

void OnComplete::drop() noexcept {
  if (op_ != nullptr) (*this)(std::make_exception_ptr(Error("its OnComplete was destroyed without being called")));
}

}  // namespace windrow
