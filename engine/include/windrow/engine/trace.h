// What an engine has done and when: a timeline for ui.perfetto.dev or chrome://tracing, and a summary of it.
//
//   engine.trace().start();
//   ...
//   engine.wait_all();
//   engine.trace().stop();
//   engine.trace().save("run.json");
//   std::cout << engine.trace().summary();
//
// It records ops that begin and end between start and stop. What it costs then is a reading of the clock and a record
// an op; where nothing is traced it costs nothing. With WINDROW_TRACE=path in the environment each engine is traced
// from its making, and saves the trace at its end: the first one of the process there, the second one to "path.2" with
// the number before the extension, and so on.
#pragma once

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace windrow {

class Core;

struct TraceOptions {
  /// What a thread runs beyond that is left out; waits count as ops. An op takes 40 bytes, and 16 for each access.
  std::uint64_t max_ops_per_thread = std::uint64_t{1} << 20;
};

/// A value: what a trace says in short.
struct TraceSummary {
  /// All ops of one name.
  struct Row {
    std::string name = {};
    std::uint64_t count = 0;
    /// From begin to end, waits inside included. Percentiles are times that some op took: half of the ops took no
    /// longer than p50.
    std::chrono::nanoseconds total{}, mean{}, p50{}, p99{};
  };
  /// One thread that ran ops, or one ordered lane.
  struct Track {
    std::string name = {};
    std::uint64_t ops = 0;
    std::chrono::nanoseconds busy{};  ///< inside functions of ops, without their waits
    double utilisation = 0;           ///< busy as a share of the trace's length
  };

  std::chrono::nanoseconds length{};  ///< from the first begin to the last end
  std::uint64_t failed = 0, cancelled = 0, skipped = 0;
  std::uint64_t left_out = 0;  ///< ops beyond TraceOptions::max_ops_per_thread
  std::vector<Row> ops = {};   ///< the longest total first
  std::vector<Track> tracks = {};
  /// The chain of dependent ops whose times have the greatest sum: with any number of workers it takes no less.
  std::chrono::nanoseconds critical_path{};
  std::vector<Row> critical_ops = {};  ///< those on it, the longest total first
};

/// An aligned table of several lines.
std::string to_string(const TraceSummary& summary);
std::ostream& operator<<(std::ostream& out, const TraceSummary& summary);

/// A handle to the one trace of an engine; copies name the same one. It must not be used after its engine is gone.
///
/// Threads: every member may be called from any thread, also while ops run and from inside an op.
class Trace {
 public:
  /// Begins a new trace and forgets the last one. Ops that run already are not part of it.
  void start(TraceOptions options = {});
  /// Ops that still run are not part of the trace. Nothing happens if it is not on.
  void stop();
  bool on() const;

  /// Writes the trace as JSON, in the format of Chrome's trace events. Where ops still run, it holds those that had
  /// finished at some moment of the call. Each ordered lane is a track, and each thread that ran ops of others;
  /// asynchronous ops have tracks of their own, on which they last until their OnComplete was called. Arrows lead to an
  /// op from those it directly waits for: to the readers of a variable from its last writer, and to the next writer
  /// from these readers, or from the last writer if there are none.
  ///
  /// The file appears at once and whole, in the place of one of that name. Throws Error, naming the path, if it cannot
  /// be written.
  void save(const std::string& path) const;

  /// Of the same ops as save().
  TraceSummary summary() const;

 private:
  friend class Engine;
  explicit Trace(Core& core) : core_(&core) {}

  Core* core_;
};

}  // namespace windrow
