// What the engine shows to people: the trace, and the report of pending ops.
#include "core/core.h"
#include "diagnosis/engine_log.h"
#include "diagnosis/pending_report.h"
#include "trace/json.h"
#include "trace/summary.h"
#include "wait/inside_wait.h"

namespace windrow {
namespace {

/// The interval at which a recording thread counts the pending ops: about a tenth of a millisecond.
constexpr Ticks sampling_interval = Ticks{1} << 18;

}  // namespace

void Core::start_trace(const TraceOptions& how) {
  {
    MutexLock lock(table_mutex_);  // add_lane() begins with the trace or is seen here
    trace_.start(how);
    for (const LaneState& lane : lanes_) {
      if (lane.ordered && !lane.lost) lane.ordered->start_trace(how.max_ops_per_thread);
    }
  }
  detours_ |= by_trace;
  sample(ports_.mine(), now_in_ticks());
}

void Core::stop_trace() {
  if (!trace_.on()) return;
  sample(ports_.mine(), now_in_ticks());
  detours_ &= ~unsigned{by_trace};
  trace_.stop();
  MutexLock lock(table_mutex_);
  for (const LaneState& lane : lanes_) {
    if (lane.ordered && !lane.lost) lane.ordered->stop_trace();
  }
}

TraceGraph Core::traced() {
  std::vector<const LaneState*> lanes;
  {
    MutexLock lock(table_mutex_);
    for (const LaneState& lane : lanes_) {
      if (lane.ordered && !lane.lost) lanes.push_back(&lane);
    }
  }
  std::vector<LaneWork> work;
  for (const LaneState* const lane : lanes) work.push_back({lane->host.name, lane->ordered->traced()});
  return read_graph(trace_.read(), work, options.policy);
}

void Core::save_trace(const std::string& path) {
  const TraceGraph graph = traced();
  write_file(path, [&](std::ostream& out) { write_json(out, graph, number); });
}

void Core::save_trace_for_environment() noexcept try {
  if (trace_path_.empty()) return;
  stop_trace();
  save_trace(trace_path_);
} catch (const std::exception& e) {
  engine_log().warn("windrow: {}", e.what());
}

Ticks Core::begin_traced(const Slots* slots) { return trace_.on() ? trace_.begin(ports_.mine(), slots) : 0; }

void Core::record_plain(OpRecord& op, const Row& row) {
  Port& port = row.port;
  const Ticks end = now_in_ticks();
  trace_.record(port, op, {.begin = row.begun, .end = end});
  // A thread that continues says when it has nothing more to do; others might sleep before they begin the next op.
  if (row.goes_on) port.trace.last_end = end;
  if (end - port.trace.last_sample > sampling_interval) sample(port, end);
}

void Core::record(OpRecord& op, const Ending& ending, const FailurePtr& failure) {
  Port& port = ports_.mine();
  const Ticks end = now_in_ticks();
  const bool cancelled = ending.outcome == Outcome::failed && failure->kind == Failure::Kind::cancelled;
  const Outcome outcome = cancelled ? Outcome::cancelled : ending.outcome;
  trace_.record(port, op, {.kind = ending.kind, .outcome = outcome, .begin = ending.begun, .end = end});
  if (end - port.trace.last_sample > sampling_interval) sample(port, end);
}

void Core::record_call(OpRecord& op, Ticks begun) {
  trace_.record(
      ports_.mine(),
      {.kind = TraceRecord::Kind::call, .begin = begun, .end = now_in_ticks(), .id = op.id(), .info = &op.info()});
}

void Core::record_wait_inside(OpRecord& op, Ticks begun) {
  if (!trace_.on()) return;
  trace_.record(ports_.mine(), {.kind = TraceRecord::Kind::wait_inside,
                                .begin = begun,
                                .end = now_in_ticks(),
                                .id = op.id(),
                                .info = &op.info()});
}

void Core::sample(Port& port, Ticks now) {
  const Ports::Sums sums = ports_.sums();
  port.trace.last_sample = now;
  port.trace.some_pending = sums.pending != sums.waits;
  trace_.record(
      port,
      {.kind = TraceRecord::Kind::sample, .begin = now, .end = policy_->ready(), .id = sums.pending - sums.waits});
  trace_.record(port, {.kind = TraceRecord::Kind::bytes, .begin = now, .id = pending_bytes_.sum()});
  trace_.record_counters(port, now);
}

void Core::rest_traced() {
  Port& port = ports_.mine();
  port.trace.last_end = 0;
  // A worker calls this often; that nothing is pending is recorded only once.
  if (port.trace.some_pending && ports_.sums().pending == 0) sample(port, now_in_ticks());
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
    frame->core->record_wait_inside(*frame->op, begun_);
  }
}

std::vector<PendingOp> Core::pending_ops() {
  std::vector<PendingOp> ops;
  const Ports::Stopped stopped(ports_);
  records_.for_each([&](OpRecord& record) {
    const OpId id = record.id();
    if (id == 0 || id == OpRecord::gate_id) return;
    PendingOp& op =
        ops.emplace_back(PendingOp{{number, id}, id >= OpRecord::first_wait_id, record.stage(), &record.info(), {}});
    for (const Dep::Access& access : record.accesses()) op.places.push_back(place_of(access));
  });
  append_nodes(ops);
  return ops;
}

std::string Core::describe_pending() {
  refuse_torn();
  if (ports_.mine().busy == Port::Busy::entering)
    throw MisuseError("describe_pending by the move constructor of a function being pushed");
  std::string text = PendingReport(pending_ops()).text();
  return text + describe_lanes();
}

/// Of the marks that the lane's ops have left at variables, the first one whose point comes after `reached` points.
static std::optional<Mark> first_mark(std::deque<VarState>& vars, const Lane* lane, std::uint64_t reached) {
  std::optional<Mark> first;
  const auto look_at = [&](const Mark& mark) {
    if (mark.point.lane != lane || mark.point.serial <= reached) return;
    if (!first || mark.point.serial < first->point.serial) first = mark;
  };
  for (VarState& var : vars) {
    std::lock_guard residue_lock(var.residue_lock);
    if (!var.residue) continue;
    if (var.residue->writer) look_at(*var.residue->writer);
    for (const Mark& mark : var.residue->readers) look_at(mark);
  }
  return first;
}

std::string Core::describe_lanes() {
  std::string text;
  const std::size_t count = lanes();
  for (std::size_t i = 0; i < count; ++i) {
    const LaneState& lane = lane_at(i);
    const auto [reached, recorded] = lane.reached();
    if (reached == recorded) continue;
    text += "\n  lane '" + lane.host.name + "' has to reach " + std::to_string(recorded - reached) +
            (recorded - reached == 1 ? " point" : " points");
    MutexLock lock(table_mutex_);
    if (const std::optional<Mark> mark = first_mark(vars_, lane.ordered.get(), reached)) {
      text += ", that of " + site(*mark->info) + " first";
    }
  }
  return text;
}

std::unique_ptr<Watchdog> make_watchdog(Core& core) {
  return std::make_unique<Watchdog>(Watchdog::Watched{
      .patience = core.options.watchdog,
      .progress = [&core] { return core.progress(); },
      .describe = [&core] { return core.describe_pending(); },
      .tell = core.options.on_silence,
  });
}

Watchdog::Progress Core::progress() {
  const Ports::Sums sums = ports_.sums();
  const std::uint64_t pending = sums.pending - sums.waits;
  Watchdog::Progress progress{.finished = sums.pushed - pending, .pending = pending};
  const std::size_t count = lanes();
  for (std::size_t i = 0; i < count; ++i) {
    const auto [reached, recorded] = lane_at(i).reached();
    progress.finished += reached;
    progress.pending += recorded - reached;
  }
  return progress;
}

void Trace::start(TraceOptions options) { core_->start_trace(options); }
void Trace::add_counter(std::string name, std::function<std::optional<std::uint64_t>()> read) {
  if (!read) throw MisuseError("trace: counter '" + name + "' has no function; expected one");
  core_->trace().add({std::move(name), std::move(read)});
}
void Trace::stop() { core_->stop_trace(); }
bool Trace::on() const { return core_->trace().on(); }
void Trace::save(const std::string& path) const { core_->save_trace(path); }
TraceSummary Trace::summary() const { return summarise(core_->traced()); }

}  // namespace windrow
