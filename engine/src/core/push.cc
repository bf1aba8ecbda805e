// Pushes: describe an op, make its record, check its accesses, enter it. This is the hot path of the pushing thread.
#include <optional>
#include <type_traits>

#include "core/core.h"
#include "core/entry.h"
#include "graph/capture.h"

namespace windrow {
namespace {

/// A function that becomes the body of an op. It may be empty.
struct FunctionBody {
  OpFunction& function;

  std::size_t bytes() const { return function ? function.table()->bytes : 0; }
  void move_to(OpRecord& op) const { op.set_function(std::move(function)); }
  void move_to(CapturedOp& op) const {
    if (function) op.kind = OpRecord::Body::function;
    op.function = std::move(function);
  }
};

/// The body of push_inside_op. A separate type, so that Engine::push is the only caller of its functions, which the
/// compiler then inlines.
struct BodyInsideOp : FunctionBody {};

struct AsyncFunctionBody {
  AsyncFunction& function;

  std::size_t bytes() const { return sizeof(AsyncBody); }
  void move_to(OpRecord& op) const { op.set_async(std::move(function)); }
  void move_to(CapturedOp& op) const {
    op.kind = OpRecord::Body::async;
    op.async = std::move(function);
  }
};

/// The function stays with the declared op.
struct DeclaredBody {
  struct Call {
    CapturedOp* op;
    void operator()(OpContext& context) const { op->function(context); }
  };
  const std::shared_ptr<DeclaredState>& declared;

  static constexpr std::size_t bytes() { return sizeof(Call); }
  void move_to(OpRecord& op) const { op.set_call<Call>(declared->op.get()); }
  void move_to(CapturedOp& op) const {
    op.kind = OpRecord::Body::function;
    op.function = [kept = declared](OpContext& context) { kept->op->function(context); };
  }
};

bool has_limits(const PushOptions& options) {
  return options.stop.stop_possible() || options.deadline.time_since_epoch().count() != 0;
}

/// Whether a push has a rare option, or no function.
template <class F>
bool is_special(const F& function, const PushOptions& options) {
  const auto deadline = static_cast<std::uint64_t>(options.deadline.time_since_epoch().count());
  return !function || options.stop.stop_possible() || (options.bytes | deadline) != 0;
}

/// Throws MisuseError if there is no function.
template <class F>
[[gnu::noinline]] F with_options(Core& core, F&& function, const PushOptions& options) {
  if (!function) throw core.front.without_function(options);
  return core.front.with_options(std::move(function), options);
}

/// Finds the core without an Engine object, which the op may outlive.
Core& core_of_running_op() {
  const Running* const frame = Running::innermost();
  if (frame == nullptr) throw MisuseError("a push inside an op, but this thread runs none");
  return *frame->core;
}

}  // namespace

/// An op's accesses in the order of the caller's list. Checks each access as it is read.
struct Front::Listed {
  const Front& front;
  const OpInfo& about;
  const Access* first;
  std::size_t count;

  [[gnu::always_inline]] Dep::Access operator()(std::size_t i) const {
    const Var var = first[i].var;
    front.check(var, about);
    return {*var.state_, var.generation_, first[i].kind};
  }
};

/// Accesses that are already checked and sorted.
struct Front::Canonical {
  const Dep::Access* first;
  std::size_t count;

  const Dep::Access& operator()(std::size_t i) const { return first[i]; }
};

/// The single access of an op, already checked. The count is a compile-time constant.
struct Front::Single {
  Dep::Access access;
  static constexpr std::integral_constant<std::size_t, 1> count{};

  const Dep::Access& operator()(std::size_t) const { return access; }
};

template <class Accesses, class Body>
[[gnu::always_inline]] inline void Front::push_op(Port& port, const Entering& op, const Accesses& accesses,
                                                  const Body& body) {
  if (port.diverted()) [[unlikely]]
    return divert(port, op, accesses, body);
  if (accesses.count == 1) {
    submit(port, op, Single{accesses(0)}, body);
  } else {
    submit(port, op, accesses, body);
  }
}

template <class Body>
[[gnu::always_inline]] inline void Front::push_listed(Port& port, const Entering& op, AccessList accesses,
                                                      const Body& body) {
  push_op(port, op, Listed{*this, op.about, accesses.begin(), accesses.size()}, body);
}

template <class Accesses, class Body>
inline void Front::submit(Port& port, const Entering& entering, const Accesses& accesses, const Body& body) {
  // Both come before the push announces itself: a serial engine's ops wait for threads that have announced a push, and
  // a fork keeps threads in start() until nothing is pending.
  if (--port.pushes_to_look <= 0) [[unlikely]]
    core_.pressure.hold_back(port);
  if (!entering.about.lane->started.load(std::memory_order_acquire)) [[unlikely]]
    core_.lanes.start(*entering.about.lane);
  const PushScope push(*this);
  if (OpRecord* const ready = enter(port, entering, accesses, body)) core_.back.release(*ready);
}

template <class Accesses, class Body>
inline OpRecord* Front::enter(Port& port, const Entering& entering, const Accesses& accesses, const Body& body) {
  const Entry entry(*this, port);
  // Ops may push until the drain ends, and retires are accepted at any time, since an owner may end at any time.
  const Life::Phase phase = core_.life.phase;
  if (phase != Life::Phase::running && !entering.retires) [[unlikely]]
    core_.life.check_phase(phase, entering.about);
  if constexpr (std::is_same_v<Accesses, Single>) {
    // The prefetch overlaps with making the record. If other threads join too, they may change the variable meanwhile.
    if (entry.joiners() == Dep::Joiners::one) Dep::prefetch_for_join(accesses.access.var(), port.last_var);
  }
  OpRecord* const op = records.make(port.records, accesses.count, body.bytes());
  try {
    Dep::place(*op, accesses.count, accesses, entering.retires);
  } catch (...) {
    records.free(port.records, op);
    throw;
  }
  const auto prepare = [&] {
    op->begin(entering.about, entering.priority, phase == Life::Phase::stopped);
    body.move_to(*op);
    const std::uint64_t pushed = port.pushed.load(std::memory_order_relaxed) + 1;
    op->set_id(thread_number(port) | pushed);
    port.pushed.store(pushed, std::memory_order_release);
  };
  const auto drop = [&](OpRecord& ended) { records.free(port.records, &ended); };
  const auto fence = [&](Dep::Var& var) -> OpRecord& { return make_fence(port, var); };
  Dep::Join joined = Dep::Join::refused;
  try {
    joined = Dep::join(*op, accesses.count, entry.joiners(), prepare, drop, fence);
  } catch (...) {
    records.free(port.records, op);
    throw;
  }
  if (joined == Dep::Join::refused) [[unlikely]]
    refuse(entering.about, op, entry);
  return joined == Dep::Join::ready ? op : nullptr;  // an op that is not ready may already be gone
}

template <class Accesses, class Body>
[[gnu::noinline]] void Front::divert(Port& port, const Entering& entering, const Accesses& accesses, const Body& body) {
  if (port.busy == Port::Busy::capturing) {
    const std::shared_ptr<CapturedOp> op = without_body(entering, accesses);
    port.capture->add(op);
    return body.move_to(*op);  // the last step, so that the caller still has the function if the capture throws
  }
  refuse_push(port, entering.about);
}

void refuse_push(const Port& port, const OpInfo& about) {
  throw MisuseError("push of " + site(about) + ": " + port.refuses_because);
}

template <class Accesses>
std::shared_ptr<CapturedOp> Front::without_body(const Entering& entering, const Accesses& accesses) {
  auto op = std::make_shared<CapturedOp>();
  op->info = &entering.about;
  op->priority = entering.priority;
  if (entering.retires) op->retires = CapturedOp::Retires::foreign;
  if (const LaneState& lane = *entering.about.lane; lane.ordered) op->core = lane.core->link;
  for (std::size_t i = 0; i < accesses.count; ++i) op->accesses.push_back(accesses(i));
  return op;
}

void Front::refuse(Var var, const OpInfo& about) const {
  if (!var)
    throw MisuseError(site(about) +
                      " names an empty Var, or a value that was moved from; expected one of Engine::new_var");
  throw MisuseError(site(about) + " names a variable of another engine; expected one that this engine made");
}

// Takes the pointer by value, so that the caller can keep it in a register if nothing is refused.
void Front::refuse(const OpInfo& about, OpRecord* op, const Entry& entry) { refuse(about, {&op, 1}, entry); }

void Front::refuse(const OpInfo& about, std::span<OpRecord* const> ops, const Entry& entry) {
  const VarState* found = nullptr;
  for (OpRecord* op : ops) {
    if (const VarState* const retired = find_retired(op->accesses(), entry.joiners())) found = retired;
    records.free(entry.port().records, op);
  }
  refuse_retired(about, found);
}

void Front::join_others(Port& port) {
  Port* nobody = nullptr;
  if (several_.load(std::memory_order_acquire) || lone_.compare_exchange_strong(nobody, &port)) return;
  const Ports::Stopped stopped(ports);
  several_.store(true, std::memory_order_release);
}

OpId Front::number_thread(Port& port) { return port.first_id = OpRecord::first_id(threads_numbered_++); }

const OpInfo& Front::describe(Port& port, const PushOptions& how) {
  OpInfo info{.pushed_at = how.pushed_at, .lane = &core_.lanes.lane(how.lane), .run_always = how.run_always};
  if (!how.name.text().empty()) info.name = how.name.text();
  return sites.keep(port, how, info);
}

MisuseError Front::without_function(const PushOptions& how) {
  return MisuseError(site(info(ports.mine(), how)) + " was given no function");
}

// ---- each kind of push ----

template <class Body>
void Front::push(OpFunction&& function, AccessList accesses, const PushOptions& how) {
  Port& port = ports.mine();
  push_listed(port, {info(port, how), how.priority}, accesses, Body{function});
}

void Engine::push(OpFunction function, AccessList accesses, const PushOptions& options) {
  if (is_special(function, options)) [[unlikely]]
    function = with_options(*core_, std::move(function), options);
  core_->front.push<FunctionBody>(std::move(function), accesses, options);
}

void push_inside_op(OpFunction function, AccessList accesses, const PushOptions& options) {
  Core& core = core_of_running_op();
  if (is_special(function, options)) function = with_options(core, std::move(function), options);
  core.front.push<BodyInsideOp>(std::move(function), accesses, options);
}

void retire_inside_op(Var var) { core_of_running_op().front.retire(var, nullptr, {.name = "retire"}); }

void Front::push_async(AsyncFunction&& function, AccessList accesses, const PushOptions& how) {
  core_.back.policy->expect_callbacks();
  Port& port = ports.mine();
  push_listed(port, {info(port, how), how.priority}, accesses, AsyncFunctionBody{function});
}

void Engine::push_async(AsyncFunction function, AccessList accesses, const PushOptions& options) {
  if (is_special(function, options)) [[unlikely]]
    function = with_options(*core_, std::move(function), options);
  core_->front.push_async(std::move(function), accesses, options);
}

void Front::retire(Var var, OpFunction&& last, PushOptions how, const char* owner) {
  if (core_.life.fork_gate.unusable()) return last.abandon();  // owners may still end, but nothing runs
  how.run_always = true;
  Port& port = ports.mine();
  std::optional<BypassCapture> lifted;
  if (port.busy == Port::Busy::refusing) [[unlikely]]
    lifted.emplace(port);  // an owner may end at any time
  push_listed(port, {info(port, how), how.priority, true}, {overwrite(var)}, FunctionBody{last});
  if (owner != nullptr && port.busy == Port::Busy::capturing) port.capture->last_is_of(owner);
}

void Front::retire_captured(CapturedOp& op) noexcept {
  if (op.has_retired) return;
  if (core_.life.fork_gate.unusable()) return op.function.abandon();
  Port& port = ports.mine();
  const BypassCapture lifted(port);  // a capture on this thread must not get this op
  try {
    submit(port, {*op.info, op.priority, true}, Single{op.accesses.front()}, FunctionBody{op.function});
  } catch (const std::exception&) {
    // The variable has been retired elsewhere, or there is no memory: ops that use it may still run.
    op.function.abandon();
  }
}

void Front::heal(Var var, const PushOptions& how) {
  Port& port = ports.mine();
  OpFunction no_function;
  if (var) var.state_->heals.fetch_add(1, std::memory_order_relaxed);
  push_listed(port, {info(port, how), how.priority}, {overwrite(var)}, FunctionBody{no_function});
}

void Front::heal(const OpError& failure, PushOptions how) {
  core_.life.refuse_unusable();
  Port& port = ports.mine();
  how.run_always = true;
  const OpInfo& about = info(port, how);
  if (failure.engine_ != core_.link) throw MisuseError(site(about) + " is given an error of another engine");
  if (port.busy == Port::Busy::capturing)
    throw MisuseError(site(about) + " inside a capture, where nothing has failed");
  if (port.busy == Port::Busy::refusing) refuse_push(port, about);
  for (const Poisoned& poisoned : poisoned(failure.failures())) {
    OpFunction clear([this, var = poisoned.var.state_, failures = failure.failures_] {
      core_.back.failures.clear_of(*var, *failures);
    });
    // Before the push, whose join releases it: who sees the push sees that it is a heal.
    poisoned.var.state_->heals.fetch_add(1, std::memory_order_relaxed);
    try {
      push_listed(port, {about, how.priority}, {mutate(poisoned.var)}, FunctionBody{clear});
    } catch (const MisuseError&) {
      const Entry entry(*this, port);
      if (Dep::generation(*poisoned.var.state_, entry.joiners()) == poisoned.var.generation_) throw;
    }
  }
}

std::shared_ptr<DeclaredState> Front::declare(OpFunction&& function, AccessList accesses, const PushOptions& how) {
  const Entering entering{info(ports.mine(), how), how.priority};
  const auto op = without_body(entering, Listed{*this, entering.about, accesses.begin(), accesses.size()});
  op->accesses.resize(Dep::canonicalise(op->accesses));
  // Excludes the bytes, which each push takes separately.
  if (has_limits(how)) {
    function =
        with_options(std::move(function), {.run_always = how.run_always, .stop = how.stop, .deadline = how.deadline});
  }
  FunctionBody{function}.move_to(*op);
  auto declared = std::make_shared<DeclaredState>();
  declared->core = core_.link;
  declared->engine = core_.number;
  declared->bytes = how.bytes;
  const DeclaredOps dropped = take_dropped();
  MutexLock lock(declared_mutex);
  declared_.push_back(op);
  declared->op = op;
  return declared;
}

void Front::push(const std::shared_ptr<DeclaredState>& declared) {
  const CapturedOp& op = *declared->op;
  const Entering entering{*op.info, op.priority};
  const Canonical accesses{op.accesses.data(), op.accesses.size()};
  if (declared->bytes == 0) return push_op(ports.mine(), entering, accesses, DeclaredBody{declared});
  OpFunction function = with_options(OpFunction([kept = declared](OpContext& context) { kept->op->function(context); }),
                                     {.bytes = declared->bytes});
  push_op(ports.mine(), entering, accesses, FunctionBody{function});
}

Front::DeclaredOps Front::take_dropped() noexcept {
  DeclaredOps taken;
  MutexLock lock(declared_mutex);
  // Ops that are pending now were pushed before the handles ended, or call other functions.
  for (auto each = declared_.begin(); each != declared_.end();) {
    const auto at = each++;
    if ((*at)->dropped.load(std::memory_order_acquire)) taken.splice(taken.end(), declared_, at);
  }
  if (!taken.empty() && ports.sums().pending != 0) declared_.splice(declared_.end(), taken);
  return taken;
}

DeclaredState::~DeclaredState() {
  if (op == nullptr) return;
  // release: a thread that sees this sees the pushes of the op.
  op->dropped.store(true, std::memory_order_release);
  Front::DeclaredOps dropped;  // destroyed after the use, since captures may own the engine
  core->use([&](Core& there) { dropped = there.front.take_dropped(); });
}

DeclaredOp Engine::declare(OpFunction function, AccessList accesses, const PushOptions& options) {
  if (!function) throw core_->front.without_function(options);
  DeclaredOp op;
  op.state_ = core_->front.declare(std::move(function), accesses, options);
  return op;
}

void Engine::push(const DeclaredOp& declared, std::source_location) {
  if (!declared) throw MisuseError("push of an empty DeclaredOp; make it with Engine::declare");
  if (declared.state_->engine != core_->number) throw MisuseError("push of a DeclaredOp of another engine");
  core_->front.push(declared.state_);
}

}  // namespace windrow
