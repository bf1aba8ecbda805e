// The readable output of an engine: its trace, and reports of pending ops.
#pragma once

#include <memory>
#include <string>

#include "core/ending.h"
#include "diagnosis/watchdog.h"
#include "trace/graph.h"
#include "trace/recorder.h"

namespace windrow {

class Core;

class Monitor {
 public:
  explicit Monitor(Core& core);
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  // ---- traces ----
  void start_trace(const TraceOptions& options);
  void stop_trace();
  TraceGraph traced();                       ///< the contents of the trace so far
  void save_trace(const std::string& path);  ///< throws an Error that names the path
  void save_trace_for_environment() noexcept;
  /// While the engine is traced, the time at which an op begins on this thread; else 0.
  Ticks begin_traced(const Slots* slots);
  /// Traces an op that began at `row.begun` and ran without error. It must not have left its variables yet.
  void record_plain(OpRecord& op, const OpsInARow& row);
  void record(OpRecord& op, const Ending& ending, const FailurePtr& failure);
  /// Traces that the function of an async op has returned.
  void record_call(OpRecord& op, Ticks begun);
  /// Records that an op on this thread has waited since `begun`.
  void record_wait_inside(OpRecord& op, Ticks begun);
  /// Called when a worker runs out of work while the engine is traced.
  void rest_traced();

  // ---- reports ----
  /// Throws MisuseError inside a push.
  std::string describe_pending();
  Watchdog::Progress progress();

  TraceRecorder trace;
  std::string trace_path;              ///< from the environment, or empty. Changes only in a forked child
  std::unique_ptr<Watchdog> watchdog;  ///< runs from the first push to the end of shutdown; null if switched off

 private:
  /// Traces the number of pending ops, unless that was done a moment ago.
  void sample(Port& port, Ticks now);
  std::string describe_lanes();

  Core& core_;
};

}  // namespace windrow
