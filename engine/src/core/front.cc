// The front of an engine except pushes: variables, queries and rare push options.
#include "core/front.h"

#include <algorithm>

#include "core/core.h"
#include "core/entry.h"
#include "core/op_limits.h"

namespace windrow {

Front::Front(Core& core)
    : core_(core), number_(core.number), callers_run_(core.callers_run), ports(core.number, core.options.denormals) {
  fence_.lane = core.lanes.host;
}

Var Front::new_var(VarName name) {
  core_.life.refuse_unusable();
  const Var var = make_var(name);
  Port& port = ports.mine();
  if (port.busy == Port::Busy::capturing) port.capture->made(var);
  return var;
}

Var Front::make_var(VarName name) {
  const auto [var, fresh] = variables.take(number_);
  std::uint32_t generation = 0;
  if (!fresh) try {
      const Entry entry(core_);
      Dep::revive(var, entry.joiners());
      generation = Dep::generation(var, entry.joiners());
    } catch (...) {
      variables.give_back(var);
      throw;
    }
  var.name = name.c_str();
  var.index = name.index();
  return Var(&var, generation);
}

VarState& Front::alive(Var var, const PushOptions& how) {
  core_.life.refuse_unusable();
  Port& port = ports.mine();
  const OpInfo& about = info(port, how);
  check(var, about);
  const Entry entry(*this, port);
  if (Dep::generation(*var.state_, entry.joiners()) != var.generation_) {
    throw MisuseError(site(about) + " names a variable, which was retired");
  }
  return *var.state_;
}

std::uint64_t Front::version(Var var, const PushOptions& how) {
  return alive(var, how).version.load(std::memory_order_acquire);
}

std::uint64_t Front::pushed_version(Var var, const PushOptions& how) {
  VarState& state = alive(var, how);
  const Entry entry(*this, ports.mine());
  // A fence writes nothing. relaxed: the lock of the variable orders the counter with the joins.
  for (;;) {
    const std::uint32_t fences = state.fences.load(std::memory_order_relaxed);
    const std::uint32_t written = Dep::written(state, entry.joiners());
    if (state.fences.load(std::memory_order_relaxed) == fences) return written - fences;
  }
}

std::vector<Poisoned> Front::poisoned(std::span<const FailurePtr> failures) {
  if (core_.life.fork_gate.unusable()) return {};
  FailureLog& log = core_.back.failures;
  std::vector<VarState*> carriers;
  variables.for_each([&](VarState& var) {
    if (log.poison_of(var, failures)) carriers.push_back(&var);
  });
  std::vector<Poisoned> result;
  for (VarState* const var : carriers) {
    const Entry entry(core_);
    const std::uint32_t generation = Dep::generation(*var, entry.joiners());
    if (generation % 2 != 0) continue;  // its retire was pushed
    // Read after the generation: if another life has begun in between, nobody accepts the handle.
    FailurePtr poison = log.poison_of(*var, failures);
    if (poison) result.push_back({Var(var, generation), name_of(*var), std::move(poison)});
  }
  return result;
}

std::vector<Poisoned> OpError::poisoned() const {
  std::vector<Poisoned> result;
  if (engine_) engine_->use([&](Core& core) { result = core.front.poisoned(failures()); });
  return result;
}

bool Front::is_idle(Var var, const Lane* lane, const PushOptions& how) {
  VarState& state = alive(var, how);
  {
    const Entry entry(*this, ports.mine());
    if (!Dep::is_idle(state, entry.joiners())) return false;
  }
  const std::lock_guard lock(state.residue_lock);
  if (state.residue == nullptr) return true;
  const auto is_past = [&](const Mark& mark) {
    return mark.point.lane == lane || mark.point.lane->reached(mark.point);
  };
  const Residue& left = *state.residue;
  return (!left.writer || is_past(*left.writer)) && std::ranges::all_of(left.readers, is_past);
}

void Front::watch(Var var, std::span<std::byte> bytes, const PushOptions& how) {
  core_.life.refuse_unusable();
  const OpInfo& about = info(ports.mine(), how);
  check(var, about);
  if (!watch_unless_retired(var, bytes)) throw MisuseError(site(about) + " names a variable, which was retired");
}

bool Front::watch_unless_retired(Var var, std::span<std::byte> bytes) {
  const auto is_var = [&](const Dep::Access& access) { return &var_of(access) == var.state_; };
  const Running* const frame = core_.frame_of_mine();
  const bool held = frame != nullptr && std::ranges::any_of(frame->op->touches(), is_var);
  // Ops of a graph have only handles of the graph's own variables with the generation of the capture.
  const bool owned = held && frame->op->body() == OpRecord::Body::node;
  std::uint32_t generation = 0;
  {
    const Entry entry(*this, ports.mine());
    generation = Dep::generation(*var.state_, entry.joiners());
  }
  // While the op has access, a retire of the variable may be pushed, but no later life can have begun.
  const std::uint32_t ahead = generation - var.generation_;
  if (ahead != 0 && !(held && ahead == 1) && !(owned && ahead == 2)) return false;
  if (core_.back.access_check) core_.back.access_check->watch(*var.state_, bytes);
  return true;
}

void Front::refuse_stale(const CapturedOp& op) {
  const Entry entry(core_);
  for (const Dep::Access& access : op.accesses) {
    if (Dep::generation(access.var(), entry.joiners()) == access.generation()) continue;
    throw MisuseError(site(*op.info) + " names a variable, which was retired");
  }
}

Var Front::take_over(const Var& var) {
  const Entry entry(core_);
  Dep::renew(*var.state_, entry.joiners());
  return Var(var.state_, Dep::generation(*var.state_, entry.joiners()));
}

void Front::retire_own(const Var& var) noexcept {
  Port& port = ports.mine();
  const BypassCapture lifted(port);  // a capture here must not record this op
  try {
    retire(var, nullptr, {.name = "retire"});
  } catch (const std::exception&) {
    // Out of memory: the variable stays until the engine ends.
  }
}

OpRecord& Front::make_fence(Port& port, Dep::Var& var) {
  OpRecord& fence = *records.make(port.records, 1, 0);
  Dep::place(fence, std::size_t{1}, [&](std::size_t) { return Dep::Access(var, 0, AccessKind::mutate); });
  fence.begin(fence_, 0, false);
  fence.set_fence();
  fence.set_id(OpRecord::gate_id);
  std::atomic<std::uint32_t>& made = static_cast<VarState&>(var).fences;
  made.store(made.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  return fence;
}

template <class F>
void Front::for_each_pending(F&& f) {
  const Ports::Stopped stopped(ports);
  records.for_each([&](OpRecord& op) {
    const OpId id = op.id();
    if (id != 0) f(op, id, nullptr);
  });
  MutexLock lock(core_.launches.mutex);
  for (GraphLaunch* launch = core_.launches.first; launch != nullptr; launch = launch->next) {
    for (const PlanNode& node : launch->plan().nodes()) {
      OpRecord& op = launch->record(node.number);
      const OpId id = launch->first_id + node.number;
      if (!op.has_finished(id)) f(op, id, &node);
    }
  }
}

bool Front::any_pending(const std::function<bool(const OpRecord&)>& is) {
  bool found = false;
  for_each_pending([&](const OpRecord& op, OpId, const PlanNode*) { found |= is(op); });
  return found;
}

std::vector<PendingOp> Front::pending_ops() {
  std::vector<PendingOp> ops;
  for_each_pending([&](OpRecord& record, OpId id, const PlanNode* node) {
    if (id == OpRecord::gate_id) return;
    PendingOp& op =
        ops.emplace_back(PendingOp{{number_, id}, id >= OpRecord::first_wait_id, record.stage(), &record.info(), {}});
    // Does not read the body, which may be destroyed meanwhile.
    const std::span<Dep::Access> accesses = node == nullptr ? record.accesses() : std::span(node->op->accesses);
    for (std::size_t i = 0; i < accesses.size(); ++i) {
      op.places.push_back(node == nullptr ? place_of(accesses[i]) : record.node().launch->place(*node, i));
    }
  });
  return ops;
}

template <class... Args>
Function<void(Args...)> Front::with_options(Function<void(Args...)>&& function, const PushOptions& how) {
  OpLimits limits;
  if (!how.run_always) limits = {how.stop, how.deadline};
  const bool captured = ports.mine().busy == Port::Busy::capturing;
  return LimitedFunction<Args...>{core_.pressure.take_bytes(captured ? 0 : how.bytes), std::move(limits),
                                  std::move(function)};
}

template OpFunction Front::with_options(OpFunction&&, const PushOptions&);
template AsyncFunction Front::with_options(AsyncFunction&&, const PushOptions&);

}  // namespace windrow
