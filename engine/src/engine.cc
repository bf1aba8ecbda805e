// The front of the engine: calls are checked, records made and entered.
#include "windrow/engine/engine.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <mutex>
#include <thread>

#include "core.h"

#if defined(__linux__)
#include <sched.h>
#endif

namespace windrow {
namespace {

constexpr std::pair<Policy, std::string_view> policy_names[] = {
    {Policy::serial, "serial"}, {Policy::pool, "pool"}, {Policy::per_device, "per_device"}, {Policy::chaos, "chaos"}};

/// While shutdown waits longer than this it says so.
constexpr std::chrono::seconds shutdown_notice{10};

std::string site(const OpInfo& info) {
  return "op '" + std::string(info.name) + "' (pushed at " + info.pushed_at.file_name() + ":" +
         std::to_string(info.pushed_at.line()) + ")";
}

EngineOptions checked(EngineOptions options) {
  if (options.workers < 1) {
    throw MisuseError("EngineOptions.workers = " + std::to_string(options.workers) + "; expected 1 or more");
  }
  if (options.max_spare_threads < 0) {
    throw MisuseError("EngineOptions.max_spare_threads = " + std::to_string(options.max_spare_threads) +
                      "; expected 0 or more");
  }
  return options;
}

}  // namespace

Policy parse_policy(std::string_view name) {
  for (const auto& [policy, text] : policy_names) {
    if (text == name) return policy;
  }
  throw MisuseError("unknown policy '" + std::string(name) + "'; expected serial, pool, per_device or chaos");
}

std::string_view to_string(Policy policy) {
  for (const auto& [known, text] : policy_names) {
    if (known == policy) return text;
  }
  return "no policy";
}

int default_workers() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

Core::Core(EngineOptions given) : options(checked(std::move(given))) {
  lanes_.emplace_back(host_lane, HostLane{.name = "host", .threads = options.workers});
  host_ = &lanes_.front();
  policy_ = make_policy(options, [this](OpRecord& op, Crew& crew) { run(op, &crew); });
}

Var Core::new_var(const OpName& name) {
  const std::string_view text = keep(name);
  MutexLock lock(table_mutex_);
  if (free_vars_.empty()) {
    vars_.emplace_back().owner = this;
    if (free_vars_.capacity() < vars_.size()) free_vars_.reserve(2 * vars_.size());  // so that free() needs no memory
    free_vars_.push_back(&vars_.back());
  }
  VarState& var = *free_vars_.back();
  free_vars_.pop_back();
  var.name = text;
  return Var(&var, var.generation);
}

void Core::free(VarState& var) {
  MutexLock lock(table_mutex_);
  free_vars_.push_back(&var);
}

std::string_view Core::keep(const OpName& name) {
  if (name.literal()) return name.text();
  MutexLock lock(table_mutex_);
  return *names_.emplace(name.text()).first;
}

LaneState& Core::lane(LaneId id) {
  if (id == host_lane) return *host_;
  MutexLock lock(table_mutex_);
  if (id.index >= lanes_.size()) {
    throw MisuseError("lane " + std::to_string(id.index) + " is unknown; this engine has lanes 0 to " +
                      std::to_string(lanes_.size() - 1));
  }
  return lanes_[id.index];
}

OpInfo Core::info(const PushOptions& push) {
  return {.name = push.name.text().empty() ? "op" : keep(push.name),
          .pushed_at = push.pushed_at,
          .lane = &lane(push.lane),
          .priority = push.priority,
          .run_always = push.run_always};
}

VarState& Core::state_of(Var var, const OpInfo& info) const {
  if (!var) throw MisuseError(site(info) + " names an empty Var; make it with Engine::new_var");
  if (var.state_->owner != this) throw MisuseError(site(info) + " names a variable of another engine");
  return *var.state_;
}

std::vector<Dep::Access> Core::canonical(AccessList accesses, const OpInfo& info) const {
  std::vector<Dep::Access> result;
  result.reserve(accesses.size());
  for (const Access& access : accesses) {
    Dep::Access& queued = result.emplace_back();
    queued.var = &state_of(access.var, info);
    queued.generation = access.var.generation_;
    queued.kind = access.kind;
  }
  result.resize(Dep::canonicalise(result));
  return result;
}

void Core::submit(OpPtr op) {
  // Counted before looking: either shutdown sees this, or this sees that shutdown has begun.
  ++pending_;
  try {
    if (life_ != Life::running && frame_of_mine() == nullptr) {
      throw MisuseError("push of " + site(op->info) + " after shutdown of its engine");
    }
    enter(std::move(op));
  } catch (...) {
    one_less_pending();
    throw;
  }
  one_less_pending();
  settle();
}

void Core::settle() {
  if (frame_of_mine() == nullptr) policy_->settle(Crew::Patience::wait_for_turn);
}

void Core::enter(OpPtr op) {
  const OpInfo info = op->info;
  if (!op->is_wait()) {
    std::call_once(info.lane->started, [&] { policy_->start(*info.lane); });
    op->id = ++last_id_;
  }
  ++pending_;
  ReadyList ready;
  OpRecord* entered = op.release();  // may be gone as soon as it has joined
  switch (Dep::join(*entered)) {
    case Dep::Join::ready:
      release(*entered, ready);
      release_all(ready);
      break;
    case Dep::Join::waiting:
      break;
    case Dep::Join::refused:
      OpRecord::destroy(entered);
      one_less_pending();
      throw MisuseError(site(info) + " names a variable that was retired");
  }
}

void Core::retire(Var var, OpFunction last, const PushOptions& push) {
  const OpInfo about = info(push);
  Dep::Access access;
  access.var = &state_of(var, about);
  access.generation = var.generation_;
  access.kind = AccessKind::overwrite;
  OpPtr op(OpRecord::create({&access, 1}));
  op->info = about;
  op->info.run_always = true;
  op->body = std::move(last);
  op->retires = true;
  if (life_ == Life::running || frame_of_mine() != nullptr) return submit(std::move(op));
  {
    MutexLock lock(life_mutex_);  // shutdown does not end between the look and the entry
    if (life_ != Life::stopped) enter(std::move(op));
  }
  if (op) enter(std::move(op));  // runs here, see dispatch
  settle();
}

std::uint64_t Core::version(Var var, const OpInfo& info) const {
  VarState& state = state_of(var, info);
  std::lock_guard lock(state.lock);
  if (state.retired || state.generation != var.generation_) {
    throw MisuseError(site(info) + " names a variable that was retired");
  }
  return state.version;
}

LaneId Core::add_lane(HostLane lane) {
  if (lane.threads < 1) {
    throw MisuseError("lane '" + lane.name + "' has threads = " + std::to_string(lane.threads) +
                      "; expected 1 or more");
  }
  MutexLock lock(table_mutex_);
  const LaneId id{static_cast<std::uint32_t>(lanes_.size())};
  lanes_.emplace_back(id, std::move(lane));
  return id;
}

LaneId Core::add_lane(std::shared_ptr<Lane> lane) {
  if (!lane) throw MisuseError("add_lane was given a null Lane");
  MutexLock lock(table_mutex_);
  const LaneId id{static_cast<std::uint32_t>(lanes_.size())};
  lanes_.emplace_back(id, std::move(lane));
  has_ordered_ = true;
  return id;
}

void Core::shutdown() {
  if (const Running* frame = frame_of_mine()) {
    throw MisuseError("shutdown inside " + site(frame->op->info) + " would wait for that op itself");
  }
  {
    MutexLock lock(life_mutex_);
    if (life_ == Life::stopped) return;
    life_ = Life::draining;
  }
  while (true) {
    drain();
    MutexLock lock(life_mutex_);
    if (pending_ == 0) {
      life_ = Life::stopped;
      break;
    }
  }
  while (visitors_ != 0) std::this_thread::yield();  // each is about to leave
  policy_->stop();
}

void Core::drain() {
  while (!wait_until_idle(std::chrono::steady_clock::now() + shutdown_notice)) {
    spdlog::warn("windrow: shutdown still waits for {} pending ops", pending_.load());
  }
  std::vector<FailurePtr> failures;
  while (!wait_until_lanes_reached(std::chrono::steady_clock::now() + shutdown_notice, failures)) {
    spdlog::warn("windrow: shutdown still waits for a lane");
  }
}

EngineStats Core::stats() const {
  return {.pushed = last_id_,
          .pending = pending_,
          .failed = failed_,
          .skipped = skipped_,
          .waits = waits_,
          .waits_in_ops = waits_in_ops_,
          .spare_threads = static_cast<std::uint64_t>(policy_->spares()),
          .replay_diverged = policy_->replay_diverged()};
}

Engine::Engine(EngineOptions options) : core_(std::make_unique<Core>(std::move(options))) {}

Engine::~Engine() {
  core_->shutdown();
  for (const FailurePtr& failure : core_->failures().unreported()) {
    spdlog::warn("windrow: nobody waited for this: {}", failure->describe());
  }
}

Var Engine::new_var(OpName name) { return core_->new_var(name); }

void Engine::retire(Var var, OpFunction last, PushOptions options) { core_->retire(var, std::move(last), options); }

void Engine::push(OpFunction function, AccessList accesses, PushOptions options) {
  const OpInfo info = core_->info(options);
  OpPtr op(OpRecord::create(core_->canonical(accesses, info)));
  op->info = info;
  op->body = std::move(function);
  core_->submit(std::move(op));
}

void Engine::push_async(AsyncFunction function, AccessList accesses, PushOptions options) {
  const OpInfo info = core_->info(options);
  if (!function) throw MisuseError("push_async of " + site(info) + " was given no function");
  OpPtr op(OpRecord::create(core_->canonical(accesses, info)));
  op->info = info;
  op->body.emplace<AsyncBody>(std::move(function));
  core_->submit(std::move(op));
}

DeclaredOp Engine::declare(OpFunction function, AccessList accesses, PushOptions options) {
  const OpInfo info = core_->info(options);
  if (!function) throw MisuseError("declare of " + site(info) + " was given no function");
  DeclaredOp op;
  op.state_ = std::make_shared<DeclaredState>(
      DeclaredState{core_.get(), std::move(function), core_->canonical(accesses, info), info});
  return op;
}

void Engine::push(const DeclaredOp& declared) {
  if (!declared) throw MisuseError("push of an empty DeclaredOp; make it with Engine::declare");
  if (declared.state_->owner != core_.get()) {
    throw MisuseError("push of " + site(declared.state_->info) + ", which was declared on another engine");
  }
  OpPtr op(OpRecord::create(declared.state_->accesses));
  op->info = declared.state_->info;
  op->body = declared.state_;
  core_->submit(std::move(op));
}

void Engine::wait(Var var, std::source_location from) { core_->wait({read(var)}, std::nullopt, from); }

void Engine::wait(AccessList accesses, std::source_location from) { core_->wait(accesses, std::nullopt, from); }

bool Engine::wait_for(AccessList accesses, std::chrono::nanoseconds patience, std::source_location from) {
  return core_->wait(accesses, std::chrono::steady_clock::now() + patience, from);
}

void Engine::wait_all() { core_->wait_all(std::nullopt); }

bool Engine::wait_all_for(std::chrono::nanoseconds patience) {
  return core_->wait_all(std::chrono::steady_clock::now() + patience);
}

void Engine::heal(Var var, PushOptions options) { push(OpFunction(), {overwrite(var)}, std::move(options)); }

std::uint64_t Engine::version(Var var, std::source_location from) {
  return core_->version(var, {.name = "version", .pushed_at = from});
}

LaneId Engine::add_lane(std::shared_ptr<Lane> lane) { return core_->add_lane(std::move(lane)); }
LaneId Engine::add_lane(HostLane lane) { return core_->add_lane(std::move(lane)); }

void Engine::shutdown() { core_->shutdown(); }
EngineStats Engine::stats() const { return core_->stats(); }
int Engine::workers() const { return core_->options.workers; }
std::vector<OpId> Engine::schedule_log() const { return core_->policy().schedule_log(); }

}  // namespace windrow
