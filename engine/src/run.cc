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

void ReadyList::push(Dep::Op& op) {
  op.next_ready = nullptr;
  *end_ = &op;
  end_ = &op.next_ready;
}

OpRecord* ReadyList::pop() {
  Dep::Op* op = first_;
  if (op == nullptr) return nullptr;
  first_ = op->next_ready;
  if (first_ == nullptr) end_ = &first_;
  return static_cast<OpRecord*>(op);
}

void Core::release_all(ReadyList& ready) {
  while (OpRecord* op = ready.pop()) release(*op, ready);
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
  const Lane* own = op.info.lane->ordered.get();
  for_each_mark(op, [&](const Mark& mark, AccessKind kind) {
    const Lane* other = mark.point.lane;
    if (own == nullptr || (own != other && !own->can_wait_for(*other))) awaited.push_back({mark, kind});
  });
  if (awaited.empty()) return true;
  // One more than awaited, so that the op goes on from here if all callbacks come at once.
  op.pending.store(static_cast<std::int32_t>(awaited.size()) + 1);
  for (const Awaited& a : awaited) {
    a.mark.point.lane->when_reached(a.mark.point, [this, &op, a](std::exception_ptr error) {
      point_reached(op, a.mark, a.kind, std::move(error));
    });
  }
  return op.pending.fetch_sub(1) == 1;
}

void Core::point_reached(OpRecord& op, const Mark& mark, AccessKind kind, std::exception_ptr error) {
  const Visit visit(*this);
  if (error && kind != AccessKind::overwrite) {
    FailurePtr failure = lost(mark, error);
    MutexLock lock(point_mutex_);
    if (!op.lane_failure) op.lane_failure = std::move(failure);
  }
  if (op.pending.fetch_sub(1) != 1) return;
  dispatch(op);
}

FailurePtr Core::lost(const Mark& mark, const std::exception_ptr& error) {
  return FailureLog::caused(Failure::Kind::lost, mark.info, mark.info.lane->failure(failures_, error));
}

void Core::dispatch(OpRecord& op) {
  if (op.after_end) {
    run(op, nullptr);
  } else if (op.info.lane->admit(op)) {
    policy_->add(op);
  }
}

void Core::end_wait(OpRecord& op, ReadyList& ready) {
  const OpPtr owner(&op);
  const auto waiter = std::get<std::shared_ptr<Waiter>>(op.body);
  waiter->failures = poisons(op);
  if (has_ordered_) {
    // Left to the thread that waits: what kept its place here meanwhile would keep others from being issued.
    for_each_mark(op, [&](const Mark& mark, AccessKind kind) { waiter->points.push_back({mark, kind}); });
  }
  Dep::leave(
      op, [](Dep::Access&) {}, [&](Dep::Op& next) { ready.push(next); });
  waiter->granted.set();
  one_less_pending();
}

void Core::run(OpRecord& op, Crew* crew) {
  auto poison = poisons(op);
  if (!poison.empty()) op.poison = std::move(poison.front());
  const bool skipped = op.poison && !op.info.run_always;
  bool sync = true;
  {
    const Running frame(*this, op, crew);
    if (!skipped) invoke(op);
    if (auto* body = std::get_if<AsyncBody>(&op.body); body != nullptr && !skipped) {
      sync = false;
      if (!count_down(op, *body)) return;  // its OnComplete finishes it, or has done so
    }
    op.body.emplace<std::monostate>();  // captures go before any successor runs
  }
  if (skipped) return finish(op, Outcome::skipped, std::nullopt);
  const std::optional<Mark> mark = leave_point(op);
  if (mark && sync && options.policy == Policy::serial) {
    // A serial engine runs a device as it runs the host: each op to its end.
    std::exception_ptr error;
    wait_until_reached(mark->point, std::nullopt, error);
  }
  finish(op, op.error ? Outcome::failed : Outcome::ran, mark);
}

void Core::invoke(OpRecord& op) {
  try {
    if (op.info.lane->ordered) issue_waits(op);
    OpContext context;
    context.failure_ = op.poison;
    if (auto* function = std::get_if<OpFunction>(&op.body)) {
      if (*function) (*function)(context);
    } else if (auto* declared = std::get_if<std::shared_ptr<DeclaredState>>(&op.body)) {
      (*declared)->function(context);
    } else if (auto* async = std::get_if<AsyncBody>(&op.body)) {
      async->function(OnComplete(*this, op));
    }
  } catch (...) {
    op.error = std::current_exception();
  }
}

void Core::issue_waits(OpRecord& op) {
  std::size_t lanes = 0;
  {
    MutexLock lock(table_mutex_);
    lanes = lanes_.size();
  }
  reserve_marks(op, lanes);
  Lane& own = *op.info.lane->ordered;
  for_each_mark(op, [&](const Mark& mark, AccessKind) {
    if (mark.point.lane != &own && own.can_wait_for(*mark.point.lane)) own.wait(mark.point);
  });
}

void Core::complete(OpRecord& op, std::exception_ptr outcome) {
  const Visit visit(*this);
  auto& body = std::get<AsyncBody>(op.body);
  body.outcome = std::move(outcome);
  {
    const Running frame(*this, op, nullptr);
    if (!count_down(op, body)) return;  // its function still runs
    op.body.emplace<std::monostate>();
  }
  finish(op, op.error ? Outcome::failed : Outcome::ran, leave_point(op));
}

bool Core::count_down(OpRecord& op, AsyncBody& body) {
  if (body.parts.fetch_sub(1) != 1) return false;
  // An exception of the function itself tells more than the dropped token it leaves behind.
  if (!op.error) op.error = body.outcome;
  return true;
}

std::optional<Mark> Core::leave_point(OpRecord& op) {
  if (!op.info.lane->ordered) return std::nullopt;
  return Mark{op.info.lane->record(), op.id, op.info};
}

void Core::finish(OpRecord& op, Outcome outcome, const std::optional<Mark>& mark) {
  OpPtr owner(&op);
  LaneState& lane = *op.info.lane;
  FailurePtr failure;
  if (outcome == Outcome::skipped) {
    failure = FailureLog::caused(Failure::Kind::skipped, op.info, op.poison);
    ++skipped_;
  } else if (outcome == Outcome::failed) {
    failure = failures_.thrown(op.info, op.error);
    ++failed_;
  }
  VarState* ended = op.retires ? &var_of(op.accesses().front()) : nullptr;

  ReadyList ready;
  {
    const FailureLog::Hold hold(failure);
    Dep::leave(
        op, [&](Dep::Access& access) { settle_access(op, access, outcome, failure, mark); },
        [&](Dep::Op& next) { ready.push(next); });
  }
  const bool after_end = op.after_end;
  owner.reset();
  if (ended != nullptr) free(*ended);
  if (OpRecord* next = after_end ? nullptr : lane.release()) policy_->add(*next);
  release_all(ready);
  one_less_pending();
}

void Core::settle_access(OpRecord& op, Dep::Access& access, Outcome outcome, const FailurePtr& failure,
                         const std::optional<Mark>& mark) {
  VarState& var = var_of(access);
  if (access.exclusive()) {
    if (outcome != Outcome::skipped) ++var.version;
    if (outcome == Outcome::failed || (outcome == Outcome::skipped && !var.poison)) FailureLog::poison(var, failure);
    if (outcome == Outcome::ran && access.kind == AccessKind::overwrite) FailureLog::clear(var);
  }
  if (mark) {
    if (var.residue) leave_mark(var, access.kind, *mark);
  } else if (outcome != Outcome::skipped && !op.info.lane->ordered && !op.lane_failure) {
    clear_marks(var, access.kind);
  }
  if (op.retires) {
    FailureLog::clear(var);
    var.residue.reset();
    var.version = 0;
    var.retired = false;
    ++var.generation;
  }
}

std::vector<FailurePtr> Core::poisons(OpRecord& op) const {
  std::vector<FailurePtr> result;
  for (Dep::Access& access : op.accesses()) {
    const FailurePtr& poison = var_of(access).poison;
    if (poison && access.kind != AccessKind::overwrite) result.push_back(poison);
  }
  if (op.lane_failure) result.push_back(op.lane_failure);
  return result;
}

void Core::one_less_pending() {
  if (--pending_ != 0) return;
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

FailurePtr OnComplete::failure() const { return op_ == nullptr ? nullptr : op_->poison; }

void OnComplete::drop() noexcept {
  if (op_ != nullptr) (*this)(std::make_exception_ptr(Error("its OnComplete was destroyed without being called")));
}

}  // namespace windrow
