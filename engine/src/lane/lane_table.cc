#include "lane/lane_table.h"

#include <thread>

#include "core/core.h"
#include "core/entry.h"
#include "policy/slots_free.h"

namespace windrow {

Lanes::Lanes(Core& core)
    : host(&all.emplace_back(core, host_lane, HostLane{.name = "host", .threads = core.options.workers})),
      core_(core),
      captures_{.name = "the captures of an op", .lane = host} {}

LaneState& Lanes::lane(LaneId id) {
  if (id == host_lane) return *host;
  if (id.engine != core_.number) throw MisuseError("the LaneId names a lane of another engine");
  return lane_at(id.index);
}

LaneState& Lanes::lane_at(std::size_t index) {
  MutexLock lock(mutex);
  return all[index];
}

std::size_t Lanes::count() {
  MutexLock lock(mutex);
  return all.size();
}

void Lanes::resume(LaneState& lane) noexcept {
  const Visit visit(core_);
  if (OpRecord* const op = lane.release()) core_.back.policy->add(*op);
}

void Lanes::end_kept(LaneState& lane) noexcept {
  const Visit visit(core_);
  if (OpRecord* const first = lane.take_kept()) core_.back.policy->add(*first);
}

void Lanes::start(LaneState& lane) {
  if (lane.removed) throw lane.removed_error();
  if (core_.life.phase == Life::Phase::stopped) return;
  core_.life.fork_gate.pass();
  if (lane.lost) {
    throw MisuseError("lane '" + lane.host.name +
                      "' was made before a fork(), which its device does not survive; make a lane in the child");
  }
  // Several threads may call this; if one fails, the next one tries again.
  if (lane.ordered) core_.back.policy->start(*host);  // for the ops that end captures
  core_.back.policy->start(lane);
  if (core_.monitor.watchdog) core_.monitor.watchdog->start();
  core_.life.fork_gate.if_open([&] { lane.started.store(true); });
  if (lane.removed) {  // removed meanwhile, by a thread that may store `started` before or after this one
    lane.started = false;
    throw lane.removed_error();
  }
}

LaneId Lanes::add_lane(HostLane lane) {
  if (lane.threads < 1) {
    throw MisuseError("lane '" + lane.name + "' has threads = " + std::to_string(lane.threads) +
                      "; expected 1 or more");
  }
  lane.threads = std::min(lane.threads, most_threads);
  MutexLock lock(mutex);
  const LaneId id{core_.number, static_cast<std::uint32_t>(all.size())};
  return all.emplace_back(core_, id, std::move(lane)).id;
}

LaneId Lanes::add_lane(std::shared_ptr<Lane> lane, const LaneOptions& how) {
  if (!lane) throw MisuseError("add_lane was given a null Lane");
  const std::string name(lane->name());
  if (how.max_in_flight < 1) throw MisuseError("lane '" + name + "' has max_in_flight = 0; expected 1 or more");
  MutexLock lock(mutex);
  for (const LaneState& known : all) {
    if (known.ordered == lane) throw MisuseError("lane '" + name + "' was added to this engine before");
  }
  const LaneId id{core_.number, static_cast<std::uint32_t>(all.size())};
  const LaneState& added = all.emplace_back(core_, id, std::move(lane), how);
  if (core_.monitor.trace.on()) added.ordered->start_trace(core_.monitor.trace.max_ops());
  core_.back.detours |= Back::by_ordered_lanes;
  return id;
}

OpRecord& Lanes::make_keeper(Port& port) {
  OpRecord& keeper = *core_.front.records.make(port.records, 0, sizeof(Kept));
  Dep::place(keeper, std::size_t{0}, [](std::size_t) -> Dep::Access { return {}; });
  return keeper;
}

void Lanes::keep(OpRecord& keeper, Captures&& captures, LaneState& lane, Point point, Port& port) noexcept {
  keeper.begin(captures_, 0, false);
  keeper.set_kept({.captures = std::move(captures), .point = point.serial});
  keeper.set_stage(OpRecord::Stage::at_points);
  keeper.set_id(OpRecord::first_wait_id | ++core_.waits.last_id);
  Port::add(port.waits, 1);
  lane.keep(keeper);
}

OpRecord* Lanes::end_captures(OpRecord& first, Slots* slots) noexcept {
  Port& port = core_.front.ports.mine();
  std::uint64_t ended = 0;
  for (OpRecord *keeper = &first, *next = nullptr; keeper != nullptr; keeper = next, ++ended) {
    next = keeper->kept().next;
    if ((core_.back.detours & Back::by_leak) != 0) keeper->abandon_body();
    {
      const Running frame(core_, *keeper, slots);
      keeper->end_body();
    }
    keeper->set_id(0);
    core_.front.records.free(port.records, keeper);
  }
  ReadyList no_others;
  OpRecord* const next = core_.back.go_on(nullptr, no_others, slots);
  Port::add(port.waits_left, ended);
  for (; ended > 0; --ended) core_.back.one_less_pending(port);
  return next;
}

void Lanes::keep_captures(CapturedOp& op) noexcept {
  const Point last = op.info->lane->last();
  if (!op.owns_captures() || !last || last.lane->reached(last)) return;  // the caller destroys them
  OpRecord* keeper = nullptr;
  try {
    const Entry entry(core_);  // keeps the engine from stopping
    if (core_.life.phase != Life::Phase::stopped) {
      keeper = &make_keeper(entry.port());
      keep(*keeper, op.take_captures(), *op.info->lane, last, entry.port());
    }
  } catch (const std::exception&) {  // no memory
    op.function.abandon();
    op.async.abandon();
    return;
  }
  if (keeper == nullptr) core_.waits.reach(last);  // no thread is left that could destroy the captures later
}

void Lanes::remove_lane(LaneId id) {
  core_.life.refuse_unusable();
  if (const Running* frame = core_.frame_of_mine()) {
    throw MisuseError("remove_lane inside " + site(frame->op->info()) + " would wait for that op itself");
  }
  if (id == host_lane) throw MisuseError("remove_lane was given the host lane; expected an ordered lane");
  if (id.engine != core_.number) throw MisuseError("remove_lane was given a lane of another engine");
  LaneState& lane = lane_at(id.index);
  const std::string name = "lane '" + lane.host.name + "'";
  if (lane.lost) throw MisuseError(name + " was made before a fork(), which its device does not survive");
  if (!lane.ordered) throw MisuseError("remove_lane was given host " + name + "; expected an ordered lane");
  const SlotsFree slots;  // first, since it may throw
  if (lane.removed.exchange(true)) throw MisuseError(name + " was removed before");
  lane.started = false;  // so that pushes look at `removed`; see start()
  core_.front.ports.hand_over();
  const auto is_of_lane = [&lane](const OpRecord& op) { return op.info().lane == &lane; };
  while (core_.front.any_pending(is_of_lane) || !lane.close_if_idle()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (const Point last = lane.last()) core_.waits.reach(last);
  lane.ordered->close();
}

}  // namespace windrow
