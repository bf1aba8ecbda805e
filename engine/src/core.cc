// The core's front: variables, lanes, the entry of ops, and the end of the engine.
#include "core.h"

#include <spdlog/spdlog.h>

#include <mutex>
#include <thread>

#include "slots_free.h"

namespace windrow {
namespace {

/// While shutdown waits longer than this it says so.
constexpr std::chrono::seconds shutdown_notice{10};

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

std::uint32_t next_number() {
  static std::atomic<std::uint32_t> last{0};
  return ++last;
}

}  // namespace

/// Where ops run on the pushing thread: announces the push, and in the end runs what is ready. While that lasts, the
/// engine may lose its owner, which an op may have captured.
class Core::Push {
 public:
  explicit Push(Core& core) : core_(core.options.policy == Policy::serial && !core.frame_of_mine() ? &core : nullptr) {
    if (core_ == nullptr) return;
    ++core_->visitors_;
    core_->policy_->before_push();
  }
  ~Push() {
    if (core_ == nullptr) return;
    // Inside an op of another serial engine, waiting for a turn here could close a ring of turns.
    const bool nested = Running::innermost() != nullptr;
    core_->policy_->after_push(nested ? Crew::Patience::give_up_if_taken : Crew::Patience::wait_for_turn);
    --core_->visitors_;
  }
  Push(const Push&) = delete;
  Push& operator=(const Push&) = delete;

 private:
  Core* const core_;
};

Core::Core(EngineOptions given) : options(checked(std::move(given))), number(next_number()) {
  lanes_.emplace_back(host_lane, HostLane{.name = "host", .threads = options.workers});
  host_ = &lanes_.front();
  WaitGraph::of_process().add_engine(number);
  policy_ = make_policy(options, [this](OpRecord& op, Crew& crew) { run(op, &crew); });
}

Core::~Core() { WaitGraph::of_process().remove_engine(number); }

Var Core::new_var(OpName name) {
  MutexLock lock(table_mutex_);
  if (free_vars_.empty()) {
    vars_.emplace_back().owner = this;
    if (free_vars_.capacity() < vars_.size()) free_vars_.reserve(2 * vars_.size());  // so that free() needs no memory
    free_vars_.push_back(&vars_.back());
  }
  VarState& var = *free_vars_.back();
  free_vars_.pop_back();
  std::lock_guard bit(var.lock);
  var.name = name.text();
  return Var(&var, var.generation);
}

void Core::free(VarState& var) {
  MutexLock lock(table_mutex_);
  free_vars_.push_back(&var);
}

LaneState& Core::lane(LaneId id) {
  if (id == host_lane) return *host_;
  if (id.engine != number) throw MisuseError("PushOptions.lane names a lane of another engine");
  MutexLock lock(table_mutex_);
  return lanes_[id.index];
}

OpInfo Core::info(const PushOptions& push) {
  OpInfo info{
      .pushed_at = push.pushed_at, .lane = &lane(push.lane), .priority = push.priority, .run_always = push.run_always};
  if (!push.name.text().empty()) info.name = push.name.text();
  return info;
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

void Core::submit(OpPtr& op) {
  const Push push(*this);
  // Counted before looking: either shutdown sees this, or this sees that shutdown has begun.
  ++pending_;
  try {
    // Ops may push to the end of the drain, and what ends with a handle may end at any time.
    const Life life = life_;
    const bool open = life == Life::running || op->retires || (life == Life::draining && frame_of_mine());
    if (!open) throw MisuseError("push of " + site(op->info) + " after shutdown of its engine");
    op->after_end = life == Life::stopped;
    enter(op);
  } catch (...) {
    one_less_pending();
    throw;
  }
  one_less_pending();
}

void Core::enter(OpPtr& op) {
  LaneState& lane = *op->info.lane;
  if (!op->after_end) std::call_once(lane.started, [&] { policy_->start(lane); });
  op->id = ++last_id_;
  ++pending_;
  OpRecord& entered = *op;
  ReadyList ready;
  switch (Dep::join(entered)) {
    case Dep::Join::ready:
      static_cast<void>(op.release());
      release(entered, ready);
      release_all(ready);
      break;
    case Dep::Join::waiting:
      static_cast<void>(op.release());  // may be gone already
      break;
    case Dep::Join::refused:
      one_less_pending();
      refuse(op->info, op->accesses());
  }
}

void Core::refuse(const OpInfo& op, std::span<Dep::Access> accesses) {
  std::string what = "a variable";
  for (const Dep::Access& access : accesses) {
    VarState& var = var_of(access);
    std::lock_guard lock(var.lock);
    // The name of a later life of the record would mislead.
    if (var.retired && var.generation == access.generation) what = "variable '" + std::string(var.name) + "'";
  }
  throw MisuseError(site(op) + " names " + what + ", which was retired");
}

void Core::retire(Var var, OpFunction last, const PushOptions& push) {
  const OpInfo about = info(push);
  OpPtr op(OpRecord::create(canonical({overwrite(var)}, about)));
  op->info = about;
  op->info.run_always = true;
  op->body = std::move(last);
  op->retires = true;
  submit(op);
}

void Core::heal(Var var, const PushOptions& push) {
  const OpInfo about = info(push);
  OpPtr op(OpRecord::create(canonical({overwrite(var)}, about)));
  op->info = about;
  submit(op);
}

std::uint64_t Core::version(Var var, const OpInfo& info) const {
  VarState& state = state_of(var, info);
  std::lock_guard lock(state.lock);
  if (state.retired || state.generation != var.generation_) {
    throw MisuseError(site(info) + " names a variable, which was retired");
  }
  return state.version;
}

LaneId Core::add_lane(HostLane lane) {
  if (lane.threads < 1) {
    throw MisuseError("lane '" + lane.name + "' has threads = " + std::to_string(lane.threads) +
                      "; expected 1 or more");
  }
  MutexLock lock(table_mutex_);
  const LaneId id{number, static_cast<std::uint32_t>(lanes_.size())};
  lanes_.emplace_back(id, std::move(lane));
  return id;
}

LaneId Core::add_lane(std::shared_ptr<Lane> lane) {
  if (!lane) throw MisuseError("add_lane was given a null Lane");
  HostLane about{std::string(lane->name()), lane->device(), 1};
  MutexLock lock(table_mutex_);
  for (const LaneState& known : lanes_) {
    if (known.ordered == lane) throw MisuseError("lane '" + about.name + "' was added to this engine before");
  }
  const LaneId id{number, static_cast<std::uint32_t>(lanes_.size())};
  lanes_.emplace_back(id, std::move(about), std::move(lane));
  has_ordered_ = true;
  return id;
}

void Core::shutdown() {
  if (const Running* frame = frame_of_mine()) {
    throw MisuseError("shutdown inside " + site(frame->op->info) + " would wait for that op itself");
  }
  const SlotsFree slots;  // inside an op of another engine
  MutexLock lock(shutdown_mutex_);
  if (life_ == Life::stopped) return;
  do {
    life_ = Life::draining;
    drain();
    life_ = Life::stopped;
  } while (pending_ != 0);                           // a retire came in between
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

bool Core::end() noexcept {
  try {
    shutdown();
  } catch (const std::exception& e) {
    spdlog::error("windrow: an engine cannot end and is leaked: {}", e.what());
    return false;
  }
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
