// A recording as a graph: which ops ran where and when, and what each waited for.
//
// Dependencies are derived from the tickets. The places at each variable are sorted by them; a read comes after the
// last writer, a writer after the reads since then, or after the last writer if there are none. A missing ticket may
// belong to any op, so nothing is known about earlier ones. Waits of threads are recorded only to fill their places in
// this order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "record/op.h"
#include "trace/recorder.h"
#include "windrow/engine/lane.h"
#include "windrow/engine/trace.h"

namespace windrow {

/// Times are nanoseconds since the trace began. Ops are sorted by their begins.
struct TraceGraph {
  struct Op {
    OpId id;
    const OpInfo* info;
    Outcome outcome;
    std::uint32_t track;
    std::int64_t begin, end;
    std::string changes = {};  ///< the values that the op changes, "x, tiles[5]"; see list_of
  };
  /// A part of an op: the call of an asynchronous op's function, or a wait.
  struct Span {
    TraceRecord::Kind kind;
    OpId id;
    const OpInfo* info;
    std::uint32_t track;
    std::int64_t begin, end;
  };
  /// A piece of work of a device.
  struct Work {
    std::string name;
    std::uint32_t track;
    std::int64_t begin, end;
  };
  struct Count {
    std::int64_t at;
    std::uint32_t counter;  ///< index of counters
    std::uint64_t value;
  };
  /// An ordered lane, its device, or a thread.
  struct Track {
    std::string name;
    bool of_async_ops;  ///< async ops overlap on a thread, so they are spread over as many tracks as needed
  };
  /// `to` begins after the end of `from`.
  struct Dependence {
    std::uint32_t from, to;
    friend auto operator<=>(const Dependence&, const Dependence&) = default;
  };

  /// The times of all others count from here. Serves to merge the files of several processes.
  std::chrono::system_clock::time_point start{};
  std::vector<Op> ops;
  std::vector<Span> spans;
  std::vector<Work> work;             ///< sorted by track, then by begin
  std::vector<std::string> counters;  ///< names
  std::vector<Count> counts;
  std::vector<Track> tracks;
  std::vector<Dependence> dependences;  ///< direct ones, sorted, each once
  std::uint64_t left_out = 0;
  bool all_arrows = false;  ///< TraceOptions::all_arrows
};

/// The work that a lane's device did.
struct LaneWork {
  std::string lane;
  std::vector<DeviceWork> work;
};
TraceGraph read_graph(const Recording& recording, const std::vector<LaneWork>& lanes, Policy policy);

/// Writes the file in the format of Chrome's trace events. It appears at once and complete. Throws Error, naming the
/// path, on failure.
void write_json(const std::string& path, const TraceGraph& graph, std::uint32_t engine);

/// Times by the names of ops, busy threads, the critical path.
TraceSummary summarise(const TraceGraph& graph);

}  // namespace windrow
