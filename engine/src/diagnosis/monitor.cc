#include "diagnosis/monitor.h"

#include "core/core.h"
#include "diagnosis/engine_log.h"
#include "diagnosis/pending_report.h"
#include "process/environment.h"
#include "trace/graph.h"

namespace windrow {
namespace {

/// The interval at which a recording thread counts the pending ops: about a tenth of a millisecond.
constexpr Ticks sampling_interval = Ticks{1} << 18;

}  // namespace

Monitor::Monitor(Core& core) : trace_path(trace_path_from_environment()), core_(core) {
  if (core.options.watchdog.count() > 0) watchdog = std::make_unique<Watchdog>(core);
}

void Monitor::start_trace(const TraceOptions& how) {
  {
    MutexLock lock(core_.lanes.mutex);  // a concurrent add_lane() sees the trace, or its lane is seen here
    trace.start(how);
    for (const LaneState& lane : core_.lanes.all) {
      if (lane.ordered && !lane.lost) lane.ordered->start_trace(how.max_ops_per_thread);
    }
  }
  core_.back.detours |= Back::by_trace;
  sample(core_.front.ports.mine(), now_in_ticks());
}

void Monitor::stop_trace() {
  if (!trace.on()) return;
  sample(core_.front.ports.mine(), now_in_ticks());
  core_.back.detours &= ~unsigned{Back::by_trace};
  trace.stop();
  MutexLock lock(core_.lanes.mutex);
  for (const LaneState& lane : core_.lanes.all) {
    if (lane.ordered && !lane.lost) lane.ordered->stop_trace();
  }
}

TraceGraph Monitor::traced() {
  std::vector<const LaneState*> lanes;
  {
    MutexLock lock(core_.lanes.mutex);
    for (const LaneState& lane : core_.lanes.all) {
      if (lane.ordered && !lane.lost) lanes.push_back(&lane);
    }
  }
  std::vector<LaneWork> work;
  for (const LaneState* const lane : lanes) work.push_back({lane->host.name, lane->ordered->traced()});
  return read_graph(trace.read(), work, core_.options.policy);
}

void Monitor::save_trace(const std::string& path) { write_json(path, traced(), core_.number); }

void Monitor::save_trace_for_environment() noexcept try {
  if (trace_path.empty()) return;
  stop_trace();
  save_trace(trace_path);
} catch (const std::exception& e) {
  engine_log().warn("windrow: {}", e.what());
}

Ticks Monitor::begin_traced(const Slots* slots) {
  return trace.on() ? trace.begin(core_.front.ports.mine(), slots) : 0;
}

void Monitor::record_plain(OpRecord& op, const OpsInARow& row) {
  Port& port = row.port;
  const Ticks end = now_in_ticks();
  trace.record(port, op, {.begin = row.begun, .end = end});
  if (end - port.trace.last_sample > sampling_interval) sample(port, end);
}

void Monitor::record(OpRecord& op, const Ending& ending, const FailurePtr& failure) {
  Port& port = core_.front.ports.mine();
  const Ticks end = now_in_ticks();
  const bool cancelled = ending.outcome == Outcome::failed && failure->kind == Failure::Kind::cancelled;
  const Outcome outcome = cancelled ? Outcome::cancelled : ending.outcome;
  trace.record(port, op, {.kind = ending.kind, .outcome = outcome, .begin = ending.begun, .end = end});
  if (end - port.trace.last_sample > sampling_interval) sample(port, end);
}

void Monitor::record_call(OpRecord& op, Ticks begun) {
  trace.record(
      core_.front.ports.mine(),
      {.kind = TraceRecord::Kind::call, .begin = begun, .end = now_in_ticks(), .id = op.id(), .info = &op.info()});
}

void Monitor::record_wait_inside(OpRecord& op, Ticks begun) {
  if (!trace.on()) return;
  trace.record(core_.front.ports.mine(), {.kind = TraceRecord::Kind::wait_inside,
                                          .begin = begun,
                                          .end = now_in_ticks(),
                                          .id = op.id(),
                                          .info = &op.info()});
}

void Monitor::sample(Port& port, Ticks now) {
  const Ports::Sums sums = core_.front.ports.sums();
  port.trace.last_sample = now;
  port.trace.some_pending = sums.pending != sums.waits;
  trace.record_counters(port, now,
                        {sums.pending - sums.waits, core_.back.policy->ready(), core_.pressure.pending_bytes.sum()});
}

void Monitor::rest_traced() {
  Port& port = core_.front.ports.mine();
  // A worker calls this often, but the sample that nothing is pending is recorded only once.
  if (port.trace.some_pending && core_.front.ports.sums().pending == 0) sample(port, now_in_ticks());
}

InsideWait::InsideWait() {
  for (Running* frame = Running::innermost(); frame != Running::floor(); frame = frame->outer) {
    if (!frame->in_piece) frame->op->set_stage(OpRecord::Stage::waits_inside);
  }
}

InsideWait::~InsideWait() {
  for (Running* frame = Running::innermost(); frame != Running::floor(); frame = frame->outer) {
    if (frame->in_piece) continue;
    frame->op->set_stage(OpRecord::Stage::runs);
    frame->core->monitor.record_wait_inside(*frame->op, begun_);
  }
}

std::string Monitor::describe_pending() {
  core_.life.refuse_unusable();
  if (core_.front.ports.mine().busy == Port::Busy::entering)
    throw MisuseError("describe_pending by the move constructor of a function being pushed");
  std::string text = PendingReport(core_.front.pending_ops()).text();
  return text + describe_lanes();
}

/// Among the marks that the lane's ops have left at variables, the first one whose point comes after `reached` points.
static std::optional<Mark> first_mark(Variables& vars, const Lane* lane, std::uint64_t reached) {
  std::optional<Mark> first;
  const auto look_at = [&](const Mark& mark) {
    if (mark.point.lane != lane || mark.point.serial <= reached) return;
    if (!first || mark.point.serial < first->point.serial) first = mark;
  };
  vars.for_each([&](VarState& var) {
    std::lock_guard residue_lock(var.residue_lock);
    if (!var.residue) return;
    if (var.residue->writer) look_at(*var.residue->writer);
    for (const Mark& mark : var.residue->readers) look_at(mark);
  });
  return first;
}

std::string Monitor::describe_lanes() {
  std::string text;
  const std::size_t count = core_.lanes.count();
  for (std::size_t i = 0; i < count; ++i) {
    const LaneState& lane = core_.lanes.lane_at(i);
    const auto [reached, recorded] = lane.reached();
    if (reached == recorded) continue;
    text += "\n  lane '" + lane.host.name + "' has to reach " + std::to_string(recorded - reached) +
            (recorded - reached == 1 ? " point" : " points");
    if (const std::optional<Mark> mark = first_mark(core_.front.variables, lane.ordered.get(), reached)) {
      text += ", that of " + site(*mark->info) + " first";
    }
  }
  return text;
}

Watchdog::Progress Monitor::progress() {
  const Ports::Sums sums = core_.front.ports.sums();
  const std::uint64_t pending = sums.pending - sums.waits;
  Watchdog::Progress progress{.finished = sums.pushed - pending, .pending = pending};
  const std::size_t count = core_.lanes.count();
  for (std::size_t i = 0; i < count; ++i) {
    const auto [reached, recorded] = core_.lanes.lane_at(i).reached();
    progress.finished += reached;
    progress.pending += recorded - reached;
  }
  return progress;
}

void Trace::start(TraceOptions options) { core_->monitor.start_trace(options); }
void Trace::add_counter(std::string name, std::function<std::optional<std::uint64_t>()> read) {
  if (!read) throw MisuseError("trace: counter '" + name + "' has no function; expected one");
  core_->monitor.trace.add({std::move(name), std::move(read)});
}
void Trace::stop() { core_->monitor.stop_trace(); }
bool Trace::on() const { return core_->monitor.trace.on(); }
void Trace::save(const std::string& path) const { core_->monitor.save_trace(path); }
TraceSummary Trace::summary() const { return summarise(core_->monitor.traced()); }

}  // namespace windrow
