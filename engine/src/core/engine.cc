// The public interface: makes records and hands them to the core.
#include "windrow/engine/engine.h"

#include <algorithm>
#include <thread>

#include "core/core.h"
#include "diagnosis/engine_log.h"
#include "process/exit.h"
#include "windrow/engine/internal/engine_use.h"
#include "windrow/engine/internal/push_refusal.h"

namespace windrow {
namespace {

constexpr std::pair<Policy, std::string_view> policy_names[] = {
    {Policy::serial, "serial"}, {Policy::pool, "pool"}, {Policy::per_device, "per_device"}, {Policy::chaos, "chaos"}};

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

Engine::Engine(EngineOptions options)
    : Engine(std::make_unique<Core>(std::move(options)), std::make_shared<EngineLife>()) {}

Engine::Engine(std::unique_ptr<Core> core, std::shared_ptr<EngineLife> life)
    : core_(std::move(core)), life_(std::move(life)) {
  life_->engine.store(this, std::memory_order_release);
}

Engine::~Engine() {
  if (core_ == nullptr) return;  // the heir below has taken over
  if (core_->frame_of_mine() == nullptr || core_->life.unusable() || engines_rest()) {
    // The core stays in place until then, since ops still push to it during the drain. It is leaked if ops may still
    // run.
    life_->leaked = !core_->life.end();
    if (life_->leaked) static_cast<void>(core_.release());
    life_->engine.store(nullptr, std::memory_order_release);
    return;
  }
  // An op held the last owner of its own engine. It cannot wait for itself, so another thread ends the engine. Until
  // then references lead to the heir.
  std::unique_ptr<Engine> heir;
  try {
    heir.reset(new Engine(std::move(core_), life_));
    std::thread([engine = heir.get()] { delete engine; }).detach();
    static_cast<void>(heir.release());
  } catch (const std::exception& e) {
    static_cast<void>((heir ? heir->core_ : core_).release());
    life_->leaked = true;
    life_->engine.store(nullptr, std::memory_order_release);
    engine_log().error("windrow: an engine that ends inside its own op is leaked, for want of a thread: {}", e.what());
  }
}

EngineRef::EngineRef(Engine& engine) : life_(engine.life_) {}

void EngineRef::refuse() const {
  throw MisuseError(life_ == nullptr ? "no engine; expected one"
                                     : "the engine is gone; expected one that outlives what computes with it");
}

Var Engine::new_var(VarName name) { return core_->front.new_var(name); }

void Engine::retire(Var var, OpFunction&& last, const PushOptions& options) {
  core_->front.retire(var, std::move(last), options);
}

Graph Engine::capture(const std::function<void()>& body, OpName name, std::source_location from) {
  Graph graph;
  graph.state_ = core_->launches.capture(body, name, from);
  return graph;
}

void Engine::wait(Var var, std::source_location from) { core_->waits.wait({read(var)}, std::nullopt, from); }

void Engine::wait(AccessList accesses, std::source_location from) { core_->waits.wait(accesses, std::nullopt, from); }

bool Engine::wait_for(AccessList accesses, std::chrono::nanoseconds patience, std::source_location from) {
  return core_->waits.wait(accesses, deadline_after(patience), from);
}

void Engine::wait_all() { core_->waits.wait_all(std::nullopt); }

bool Engine::wait_all_for(std::chrono::nanoseconds patience) { return core_->waits.wait_all(deadline_after(patience)); }

void Engine::heal(Var var, const PushOptions& options) { core_->front.heal(var, options); }
void Engine::heal(const OpError& failure, const PushOptions& options) { core_->front.heal(failure, options); }

PushRefusal::PushRefusal(Engine& engine, const char* why) : core_(*engine.core_), frame_(Running::innermost()) {
  Port& port = core_.front.ports.mine();
  if (port.busy != Port::Busy::no) {
    throw MisuseError("a refusal of pushes inside a capture, a push or another refusal, of the same engine");
  }
  port.busy = Port::Busy::refusing;
  port.refuses_because = why;
  OwnThreadOnly::begin();
}
PushRefusal::~PushRefusal() {
  OwnThreadOnly::end();
  if (Port* const port = core_.front.ports.mine_if_any()) port->busy = Port::Busy::no;  // made by the constructor
}

bool PushRefusal::refuses_or_captures(Engine& engine) { return engine.core_->front.ports.mine().diverted(); }
bool PushRefusal::in_force() const {
  const Running* frame = Running::innermost();
  while (frame != frame_ && frame != nullptr && frame->again) frame = frame->outer;  // pieces of loops in the scope
  return frame == frame_;
}

EngineUse::EngineUse(Engine& engine) : core_(*engine.core_) { ++core_.life.visitors; }
EngineUse::~EngineUse() { --core_.life.visitors; }
void EngineUse::note_awaited(Engine& engine) { engine.core_->front.ports.mine().completes_ops = true; }
void EngineUse::retire(Engine& engine, Var var, const char* owner, OpFunction&& last, const PushOptions& options) {
  engine.core_->front.retire(var, std::move(last), options, owner);
}
void log_warning(std::string_view line) noexcept { engine_log().warn("windrow: {}", line); }
bool EngineUse::runs_op(Engine& engine) { return engine.core_->frame_of_mine() != nullptr; }
bool EngineUse::wait_until_idle(Engine& engine, std::chrono::nanoseconds patience) {
  engine.core_->life.refuse_unusable();
  return engine.core_->waits.wait_until_idle(deadline_after(patience));
}
bool EngineUse::is_idle(Engine& engine, Var var, const Lane* lane) {
  return engine.core_->front.is_idle(var, lane, {.name = "is_idle"});
}

std::uint8_t EngineUse::heals(Engine& engine, Var var) { return engine.core_->front.heals(var, {.name = "heals"}); }

std::uint64_t Engine::version(Var var, std::source_location from) {
  return core_->front.version(var, {.name = "version", .pushed_at = from});
}

std::uint64_t Engine::pushed_version(Var var, std::source_location from) {
  return core_->front.pushed_version(var, {.name = "pushed_version", .pushed_at = from});
}

void Engine::watch(Var var, std::span<std::byte> bytes, std::source_location from) {
  core_->front.watch(var, bytes, {.name = "watch", .pushed_at = from});
}

Watcher Engine::watcher() { return Watcher(core_->options.check ? core_.get() : nullptr); }
bool Watcher::watch(Var var, std::span<std::byte> bytes) const {
  return core_ != nullptr && core_->front.watch_unless_retired(var, bytes);
}

LaneId Engine::add_lane(std::shared_ptr<Lane> lane, const LaneOptions& options) {
  return core_->lanes.add_lane(std::move(lane), options);
}
LaneId Engine::add_lane(HostLane lane) { return core_->lanes.add_lane(std::move(lane)); }
Lane* Engine::lane(LaneId lane) const { return core_->lanes.lane(lane).ordered.get(); }

void Engine::remove_lane(LaneId lane) { core_->lanes.remove_lane(lane); }

void Engine::shutdown() { core_->life.shutdown(); }
bool Engine::shutdown_for(std::chrono::nanoseconds patience, const std::function<void(std::string)>& abort) {
  return core_->life.shutdown_for(patience, abort);
}
EngineStats Engine::stats() const { return core_->stats(); }
std::uint64_t Engine::failures() const { return core_->failures(); }
int Engine::workers() const { return core_->options.workers; }
Trace Engine::trace() { return Trace(*core_); }
std::string Engine::describe_pending() { return core_->monitor.describe_pending(); }

}  // namespace windrow
