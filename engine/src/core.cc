// The core's front: variables, lanes, the entry of ops, and the end of the engine.
#include "core.h"

#include <spdlog/spdlog.h>

#include <limits>
#include <mutex>
#include <thread>

#include "capture.h"
#include "entry.h"
#include "slots_free.h"
#include "trace_environment.h"

namespace windrow {
namespace {

EngineOptions checked(EngineOptions options) {
  if (options.workers < 1) {
    throw MisuseError("EngineOptions.workers = " + std::to_string(options.workers) + "; expected 1 or more");
  }
  if (options.max_pending_ops < 1) {
    throw MisuseError("EngineOptions.max_pending_ops = 0; expected 1 or more");
  }
  if (options.check) options.policy = Policy::serial;
  if (options.max_pending_bytes == 0) options.max_pending_bytes = std::numeric_limits<std::uint64_t>::max();
  if (options.max_spare_threads < 0) {
    throw MisuseError("EngineOptions.max_spare_threads = " + std::to_string(options.max_spare_threads) +
                      "; expected 0 or more");
  }
  if (options.watchdog.count() < 0)
    throw MisuseError("EngineOptions.watchdog is negative; expected 0 for none, or more");
  return options;
}

std::uint32_t next_number() {
  static std::atomic<std::uint32_t> last{0};
  return ++last;
}

}  // namespace

Core::Core(EngineOptions given)
    : options(checked(std::move(given))),
      number(next_number()),
      trace_path_(trace_path_from_environment()),
      access_check_(options.check ? std::make_unique<AccessCheck>() : nullptr) {
  if (options.check) detours_ |= by_check;
  lanes_.emplace_back(host_lane, HostLane{.name = "host", .threads = options.workers});
  host_ = &lanes_.front();
  host_->core = this;
  end_of_graph_.lane = host_;
  policy_ = make_policy({.options = options,
                         .ports = ports_,
                         .run = [this](OpRecord& op, Slots& slots) { run(op, &slots); },
                         .out_of_work =
                             [this] {
                               if (trace_.on()) rest_traced();
                               tell_if_idle();
                             }});
  if (options.watchdog.count() > 0) watchdog_ = make_watchdog(*this);
  if (!trace_path_.empty()) start_trace({});
  WaitGraph::of_process().add_engine(*this);
  Forks::of_process().add(*this);
}

Core::~Core() {
  link_->end();
  Forks::of_process().remove(*this);
  WaitGraph::of_process().remove_engine(*this);
}

Var Core::new_var(OpName name) {
  refuse_torn();
  const Var var = make_var(name);
  Port& port = ports_.mine();
  if (port.busy == Port::Busy::capturing) port.capture->made(var);
  return var;
}

Var Core::make_var(OpName name) {
  MutexLock lock(table_mutex_);
  const bool fresh = free_vars_.empty();
  if (fresh) {
    vars_.emplace_back().owner = number;
    if (free_vars_.capacity() < vars_.size()) free_vars_.reserve(2 * vars_.size());  // so that free() needs no memory
    free_vars_.push_back(&vars_.back());
  }
  VarState& var = *free_vars_.back();
  if (fresh) {
    free_vars_.pop_back();
    var.name = name.c_str();
    return Var(&var, 0);
  }
  const Entry entry(*this);
  free_vars_.pop_back();
  Dep::revive(var, entry.joiners());
  var.name = name.c_str();
  return Var(&var, Dep::generation(var, entry.joiners()));
}

void Core::free(VarState& var) {
  MutexLock lock(table_mutex_);
  free_vars_.push_back(&var);
}

const OpInfo& Core::info(Port& port, const PushOptions& how) {
  return sites_.find(port, how, [&] {
    OpInfo info{.pushed_at = how.pushed_at, .lane = &lane(how.lane), .run_always = how.run_always};
    if (!how.name.text().empty()) info.name = how.name.text();
    return info;
  });
}

void Core::check(AccessList accesses, const OpInfo& about) const {
  for (const Access& access : accesses) check(access.var, about);
}

void Core::check(Var var, const OpInfo& about) const {
  if (!var) throw MisuseError(site(about) + " names an empty Var; make it with Engine::new_var");
  if (var.state_->owner != number) throw MisuseError(site(about) + " names a variable of another engine");
}

void Core::join_others(Port& port) {
  Port* nobody = nullptr;
  if (several_.load(std::memory_order_acquire) || lone_.compare_exchange_strong(nobody, &port)) return;
  const Ports::Stopped stopped(ports_);
  several_.store(true, std::memory_order_release);
}

OpId Core::first_id(Port& port) {
  if (port.first_id == Port::unnumbered) port.first_id = OpId{threads_numbered_++} << (64 - OpRecord::thread_bits);
  return port.first_id;
}

template <class AccessOf, class SetBody>
inline void Core::submit(Port& port, const OpInfo& about, int priority, std::size_t accesses, AccessOf&& access_of,
                         std::size_t body_bytes, SetBody&& set_body, bool retires) {
  if (!about.lane->started.load(std::memory_order_acquire) && life_ != Life::stopped) start(*about.lane);
  const Push push(*this);
  OpRecord* op = nullptr;
  Dep::Join joined = Dep::Join::refused;
  {
    const Entry entry(*this, port);
    // Ops may push to the end of the drain, and what ends with a handle may end at any time.
    const Life life = life_;
    if (life != Life::running && !retires) check_life(life, about);
    op = records_.make(port.records, accesses, body_bytes);
    try {
      Dep::place(*op, accesses, access_of, retires);
    } catch (...) {
      records_.free(port.records, op);
      throw;
    }
    const auto prepare = [&] {
      op->begin(about, priority, life == Life::stopped);
      set_body(*op);
      const std::uint64_t pushed = port.pushed.load(std::memory_order_relaxed) + 1;
      op->set_id(first_id(port) | pushed);
      port.pushed.store(pushed, std::memory_order_release);
    };
    const auto drop = [&](OpRecord& ended) { records_.free(port.records, &ended); };
    joined = Dep::join(*op, entry.joiners(), prepare, drop);
    if (joined == Dep::Join::refused) refuse(about, {&op, 1}, entry);
  }
  if (joined == Dep::Join::ready) release(*op);  // else it may be gone already
  if (--port.pushes_to_look <= 0 && !retires) hold_back(port);
}

void Core::check_life(Life life, const OpInfo& about) const {
  if (life == Life::draining && frame_of_mine() != nullptr) return;
  throw MisuseError("push of " + site(about) + " after shutdown of its engine");
}

void Core::refuse(const OpInfo& about, std::span<OpRecord* const> ops, const Entry& entry) {
  const char* name = nullptr;
  for (OpRecord* op : ops) {
    for (const Dep::Access& access : op->accesses()) {
      // The name of a later life of the variable would mislead.
      VarState& var = var_of(access);
      if (Dep::generation(var, entry.joiners()) == access.generation() + 1) name = var.name;
    }
    records_.free(entry.port().records, op);
  }
  const std::string what = name == nullptr ? "a variable" : "variable '" + std::string(name) + "'";
  throw MisuseError(site(about) + " names " + what + ", which was retired");
}

auto Core::access_of(AccessList accesses, const OpInfo& about) const {
  return [this, first = accesses.begin(), &about](std::size_t i) {
    const Access& access = first[i];
    check(access.var, about);
    return Dep::Access(*access.var.state_, access.var.generation_, access.kind);
  };
}

void Core::push(OpFunction&& function, AccessList accesses, const PushOptions& how, bool retires) {
  Port& port = ports_.mine();
  const OpInfo& about = info(port, how);
  if (port.busy == Port::Busy::capturing) [[unlikely]] {
    const auto op = captured(about, how.priority, accesses);
    if (function) op->kind = OpRecord::Body::function;
    op->function = std::move(function);
    if (retires) op->retires = CapturedOp::Retires::foreign;
    return port.capture->add(op);
  }
  submit(
      port, about, how.priority, accesses.size(), access_of(accesses, about), function ? function.table()->bytes : 0,
      [&](OpRecord& op) { op.set_function(std::move(function)); }, retires);
}

void Core::push_async(AsyncFunction&& function, AccessList accesses, const PushOptions& how) {
  policy_->expect_callbacks();
  Port& port = ports_.mine();
  const OpInfo& about = info(port, how);
  if (port.busy == Port::Busy::capturing) [[unlikely]] {
    const auto op = captured(about, how.priority, accesses);
    op->kind = OpRecord::Body::async;
    op->async = std::move(function);
    return port.capture->add(op);
  }
  submit(
      port, about, how.priority, accesses.size(), access_of(accesses, about), sizeof(AsyncBody),
      [&](OpRecord& op) { op.set_async(std::move(function)); }, false);
}

std::shared_ptr<DeclaredState> Core::declare(OpFunction&& function, AccessList accesses, const PushOptions& how) {
  const OpInfo& about = info(ports_.mine(), how);
  std::vector<Dep::Access> canonical;
  canonical.reserve(accesses.size());
  const auto access = access_of(accesses, about);
  for (std::size_t i = 0; i < accesses.size(); ++i) canonical.push_back(access(i));
  canonical.resize(Dep::canonicalise(canonical));
  PushOptions kept = how;
  if (how.stop) {
    // Bytes are each push's own.
    function = adorn(std::move(function), {.run_always = how.run_always, .stop = how.stop});
    kept.stop = {};
  }
  return std::make_shared<DeclaredState>(DeclaredState{number, std::move(function), std::move(canonical), kept});
}

void Core::push(const std::shared_ptr<DeclaredState>& declared, std::source_location pushed_at) {
  Port& port = ports_.mine();
  PushOptions how = declared->how;
  how.pushed_at = pushed_at;
  const auto access = [first = declared->accesses.data()](std::size_t i) -> const Dep::Access& { return first[i]; };
  const std::size_t accesses = declared->accesses.size();
  if (port.busy == Port::Busy::capturing) [[unlikely]] {
    const auto op = captured(info(port, how), how.priority, {});
    op->kind = OpRecord::Body::declared;
    op->declared = declared;
    op->accesses = declared->accesses;
    return port.capture->add(op);
  }
  if (how.bytes == 0) {
    submit(
        port, info(port, how), how.priority, accesses, access, sizeof declared,
        [&](OpRecord& op) { op.set_declared(declared); }, false);
  } else {
    OpFunction run = adorn(OpFunction([declared](OpContext& context) { declared->function(context); }), how);
    submit(
        port, info(port, how), how.priority, accesses, access, run.table()->bytes,
        [&](OpRecord& op) { op.set_function(std::move(run)); }, false);
  }
}

void Core::retire(Var var, OpFunction&& last, PushOptions how) {
  if (fork_gate_.torn()) return;  // what owns something may end; nothing runs any more
  how.run_always = true;
  push(std::move(last), {overwrite(var)}, how, true);
}

void Core::heal(Var var, const PushOptions& how) { push(nullptr, {overwrite(var)}, how); }

VarState& Core::alive(Var var, const PushOptions& how) {
  refuse_torn();
  Port& port = ports_.mine();
  const OpInfo& about = info(port, how);
  check(var, about);
  const Entry entry(*this, port);
  if (Dep::generation(*var.state_, entry.joiners()) != var.generation_) {
    throw MisuseError(site(about) + " names a variable, which was retired");
  }
  return *var.state_;
}

std::uint64_t Core::version(Var var, const PushOptions& how) {
  return alive(var, how).version.load(std::memory_order_acquire);
}

void Core::watch(Var var, std::span<std::byte> bytes, const PushOptions& how) {
  VarState& state = alive(var, how);
  if (access_check_) access_check_->watch(state, bytes);
}

MisuseError Core::without_function(const PushOptions& how) {
  return MisuseError(site(info(ports_.mine(), how)) + " was given no function");
}

void Core::shutdown() {
  if (fork_gate_.torn()) return;
  if (const Running* frame = frame_of_mine()) {
    throw MisuseError("shutdown inside " + site(frame->op->info()) + " would wait for that op itself");
  }
  const SlotsFree slots;  // inside an op of another engine
  MutexLock lock(shutdown_mutex_);
  if (life_ == Life::stopped) return;
  do {
    set_life(Life::draining);
    drain();
    set_life(Life::stopped);
  } while (ports_.sums().pending != 0);              // a retire came in between
  while (visitors_ != 0) std::this_thread::yield();  // each is about to leave
  policy_->stop();
  if (watchdog_) watchdog_->stop();
}

void Core::set_life(Life life) {
  life_ = life;
  const Ports::Stopped stopped(ports_);  // who was inside a push has entered its op, and who comes sees the new life
}

void Core::drain() {
  while (!wait_until_idle(std::chrono::steady_clock::now() + shutdown_notice)) {
    spdlog::warn("windrow: shutdown still waits for {} pending ops", ports_.sums().pending);
  }
  const std::size_t count = lanes();
  for (std::size_t i = 0; i < count; ++i) {
    if (const Point last = lane_at(i).last()) reach(last);
  }
}

EngineStats Core::stats() const {
  const Ports::Sums sums = ports_.sums();
  return {.pushed = sums.pushed,
          .pending = sums.pending - sums.waits,
          .pending_bytes = pending_bytes_.sum(),
          .failed = failed_,
          .skipped = skipped_,
          .cancelled = cancelled_,
          .waits = waits_,
          .waits_in_ops = waits_in_ops_,
          .spare_threads = static_cast<std::uint64_t>(policy_->spares()),
          .replay_diverged = policy_->replay_diverged()};
}

bool Core::end() noexcept {
  if (fork_gate_.torn()) return false;
  try {
    shutdown();
  } catch (const std::exception& e) {
    spdlog::error("windrow: an engine cannot end and is leaked: {}", e.what());
    return false;
  }
  save_trace_for_environment();
  try {
    for (const FailurePtr& failure : failures_.unreported()) {
      spdlog::warn("windrow: nobody waited for this: {}", failure->describe());
    }
  } catch (const std::exception& e) {
    spdlog::error("windrow: a failure nobody waited for cannot be described: {}", e.what());
  }
  return true;
}

}  // namespace windrow
