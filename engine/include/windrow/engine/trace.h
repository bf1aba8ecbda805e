// Traces: a timeline of an engine's ops for ui.perfetto.dev or chrome://tracing, and a summary.
//
//   engine.trace().start();
//   ...
//   engine.wait_all();
//   engine.trace().stop();
//   engine.trace().save("run.json");
//   std::cout << engine.trace().summary();
//
// A trace records ops that begin and end between start and stop. While it is on, each op costs one reading of the clock
// and one record; while it is off, it costs nothing. If the environment variable WINDROW_TRACE=path is set, each engine
// is traced from its construction and saves its trace when it ends: the first engine of the process to run.json, the
// next to run.2.json; under mpirun or srun, those of rank 1 to run.1.json, run.1.2.json (windrow-timeline merge).
#pragma once
#include "windrow/engine/internal/requirements.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace windrow {

class Core;

struct TraceOptions {
  /// The most ops (including waits) that are recorded per thread; further ops are left out. An op takes 40 bytes, plus
  /// 16 for each access.
  std::uint64_t max_ops_per_thread = std::uint64_t{1} << 20;
  /// Whether save() draws an arrow for each dependence. By default an op has one arrow, from the predecessor that ended
  /// last. All arrows make files several times as large.
  bool all_arrows = false;
};

/// The summary of a trace. A value.
struct TraceSummary {
  /// All ops of one name.
  struct Row {
    std::string name = {};
    std::uint64_t count = 0;
    /// Durations from begin to end, including waits inside. p50 and p99 are durations that occurred: half of the ops
    /// took no longer than p50.
    std::chrono::nanoseconds total{}, mean{}, p50{}, p99{};
  };
  /// One thread that ran ops, one ordered lane, or the device of a lane that reports when it worked.
  struct Track {
    std::string name = {};
    std::uint64_t ops = 0;            ///< of a device: pieces of work
    std::chrono::nanoseconds busy{};  ///< inside functions of ops, excluding their waits; for a device: while it worked
    double utilisation = 0;           ///< busy as a fraction of the trace's length
  };

  std::chrono::nanoseconds length{};  ///< from the first begin to the last end
  std::uint64_t failed = 0, cancelled = 0, skipped = 0;
  std::uint64_t left_out = 0;  ///< ops beyond TraceOptions::max_ops_per_thread
  std::vector<Row> ops = {};   ///< in order of descending total
  std::vector<Track> tracks = {};
  std::vector<Row> device_work = {};  ///< kernels and copies of devices, in order of descending total
  /// Duration of the longest chain of dependent ops: a lower bound on the run time with any number of workers.
  std::chrono::nanoseconds critical_path{};
  std::vector<Row> critical_ops = {};  ///< the ops of that chain, in order of descending total
};

/// An aligned table of several lines.
std::string to_string(const TraceSummary& summary);
std::ostream& operator<<(std::ostream& out, const TraceSummary& summary);

/// A handle to the trace of an engine. An engine has one trace, so copies name the same one. It must not be used after
/// its engine is gone.
///
/// Threads: every member may be called from any thread, also while ops run and inside an op.
class Trace {
 public:
  /// Discards the last trace and begins a new one. Ops that are already running are not part of it.
  void start(TraceOptions options = {});
  /// Ends the trace; does nothing if none is on. Ops that are still running are not part of it.
  void stop();
  bool on() const;

  /// Writes the trace as JSON in the format of Chrome's trace events. While the trace is on, it writes the ops that had
  /// finished at some moment during the call. Each ordered lane is a track, and so is each thread that ran ops of other
  /// lanes. The work of a device has a separate track, if its lane reports when it was done. Asynchronous ops have
  /// separate tracks, on which they last until their OnComplete is called. Arrows lead to an op from the ops that it
  /// directly depends on: from the last writer of a variable to its readers, and from these readers (or, without
  /// readers, from the last writer) to the next writer; see TraceOptions::all_arrows. If ops were left out, an event at
  /// the end says how many.
  ///
  /// The file replaces an existing regular file atomically. Throws Error, naming the path, if it cannot be written.
  void save(const std::string& path) const;

  /// Adds a track of a value, such as bytes in use. While the trace is on, threads call `read` as ops end, concurrently
  /// and at most about ten thousand times a second per thread. `read` must not throw, and must not call the engine. It
  /// is kept until the engine has ended. An empty value, such as that of an object that is gone, is left out.
  void add_counter(std::string name, std::function<std::optional<std::uint64_t>()> read);

  /// The summary of the ops that save() would write.
  TraceSummary summary() const;

 private:
  friend class Engine;
  explicit Trace(Core& core) : core_(&core) {}

  Core* core_;
};

/// Counters since the engine was constructed.
struct EngineStats {
  std::uint64_t pushed = 0;
  std::uint64_t pending = 0;        ///< pushed and not yet finished; too high if ops start and finish during the call
  std::uint64_t pending_bytes = 0;  ///< held by pending ops, as given by PushOptions::bytes
  std::uint64_t failed = 0;         ///< ops that threw, or dropped their OnComplete
  std::uint64_t skipped = 0;        ///< ops that did not run because of poison
  std::uint64_t cancelled = 0;      ///< cancelled before they ran, or threw Cancelled; not counted in `failed`
  std::uint64_t waits = 0;          ///< calls of wait and wait_all, also timed ones, outside its ops
  std::uint64_t waits_in_ops = 0;   ///< calls of wait and wait_for inside its ops
  std::uint64_t spare_threads = 0;  ///< threads added for waits inside ops
};

}  // namespace windrow
