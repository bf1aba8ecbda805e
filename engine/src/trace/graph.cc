#include "trace/graph.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>
#include <utility>

#include "lane/lanes.h"

namespace windrow {
namespace {

constexpr std::uint32_t no_op = ~std::uint32_t{0};

/// The place of an op, or of a wait, at a variable.
struct TracedPlace {
  VarPlace access;
  std::uint32_t op;  ///< or no_op
  bool retires;
};

/// Reads the records of a trace, in the order of the threads.
class TraceReader {
 public:
  TraceReader(const Recording& recording, const std::vector<LaneWork>& lanes, Policy policy)
      : recording_(recording), policy_(policy), scale_(recording.start, recording.end) {
    graph_.start = recording.start.wall;
    graph_.left_out = recording.left_out;
    graph_.all_arrows = recording.all_arrows;
    graph_.counters = recording.counters;
    for (const Recording::Thread& thread : recording.threads) read(thread);
    for (const LaneWork& lane : lanes) read(lane);
  }

  TraceGraph take() {
    lay_out_async_ops();
    find_dependences();
    begin_after_predecessors();
    order_ops();
    std::ranges::stable_sort(graph_.counts, {}, &TraceGraph::Count::at);
    return std::move(graph_);
  }

 private:
  void read(const Recording::Thread& thread) {
    track_ = no_op;
    for (const auto& chunk : thread.chunks) {
      // acquire: pairs with the release in TraceLog::append.
      const std::size_t used = chunk->used.load(std::memory_order_acquire);
      for (std::size_t at = 0; at < used;) {
        TraceRecord record;
        std::memcpy(&record, chunk->memory.get() + at, sizeof record);
        read(record, chunk->memory.get() + at + sizeof record, thread);
        at += TraceLog::bytes_of(record);
      }
    }
  }

  void read(const TraceRecord& record, const std::byte* accesses, const Recording::Thread& thread) {
    using Kind = TraceRecord::Kind;
    if (record.kind == Kind::wait) return read_places(record, accesses, no_op);
    if (record.begin < recording_.start.ticks) return;
    const std::int64_t begin = scale_.nanoseconds(record.begin);
    if (record.kind == Kind::counter) {
      return graph_.counts.push_back({begin, static_cast<std::uint32_t>(record.end), record.id});
    }
    if (record.end > recording_.end.ticks) return;
    const std::int64_t end = scale_.nanoseconds(record.end);
    if (record.kind == Kind::async_op || record.kind == Kind::op) {
      const auto op = static_cast<std::uint32_t>(graph_.ops.size());
      const std::uint32_t track = record.kind == Kind::op ? track_of(thread, record) : no_op;
      graph_.ops.push_back({record.id, record.info, record.outcome, track, begin, end});
      read_places(record, accesses, op);
    } else {
      graph_.spans.push_back({record.kind, record.id, record.info, track_of(thread, record), begin, end});
    }
  }

  void read_places(const TraceRecord& record, const std::byte* accesses, std::uint32_t op) {
    std::vector<std::pair<std::string_view, std::int32_t>> changes;
    for (std::uint32_t i = 0; i < record.accesses; ++i) {
      TracedAccess access;
      std::memcpy(&access, accesses + i * sizeof access, sizeof access);
      places_.push_back({access.place, op, record.retires});
      if (access.value != nullptr && !record.retires) changes.emplace_back(access.value, access.index);
    }
    if (op != no_op) graph_.ops[op].changes = list_of(std::move(changes), "");
  }

  /// The lane has noted only work of this trace. Its clock may differ a little from that of the host.
  void read(const LaneWork& lane) {
    using std::chrono::nanoseconds;
    if (lane.work.empty()) return;
    graph_.tracks.push_back({lane.lane + " device", false});
    const auto track = static_cast<std::uint32_t>(graph_.tracks.size() - 1);
    const auto first = static_cast<std::ptrdiff_t>(graph_.work.size());
    const nanoseconds whole = recording_.end.time - recording_.start.time;
    for (const DeviceWork& work : lane.work) {
      const nanoseconds length = std::min<nanoseconds>(work.end - work.begin, whole);
      const nanoseconds begin =
          std::clamp<nanoseconds>(work.begin - recording_.start.time, nanoseconds(0), whole - length);
      graph_.work.push_back({work.name, track, begin.count(), (begin + length).count()});
    }
    std::sort(graph_.work.begin() + first, graph_.work.end(), [](const TraceGraph::Work& a, const TraceGraph::Work& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
  }

  /// The track of the op's lane if it is ordered, otherwise of the thread whose records are being read. A track is made
  /// for its first record.
  std::uint32_t track_of(const Recording::Thread& thread, const TraceRecord& record) {
    if (const LaneState& lane = *record.info->lane; lane.ordered) {
      const auto [track, is_new] = lane_tracks_.try_emplace(&lane, no_op);
      if (is_new) track->second = add_track(lane.host.name, false);
      return track->second;
    }
    if (track_ == no_op) track_ = add_track(role(thread, record), false);
    return track_;
  }

  std::string role(const Recording::Thread& thread, const TraceRecord& record) const {
    if (policy_ == Policy::serial) return "thread";
    if (thread.slots == nullptr) return "outside";
    return policy_ == Policy::per_device ? record.info->lane->host.name : "worker";
  }

  std::uint32_t add_track(const std::string& role, bool of_async_ops) {
    graph_.tracks.push_back({role + " " + std::to_string(++in_role_[role]), of_async_ops});
    return static_cast<std::uint32_t>(graph_.tracks.size() - 1);
  }

  /// Each async op goes to the track that has been free for longest, if there is one.
  void lay_out_async_ops() {
    std::vector<std::uint32_t> async;
    for (std::uint32_t i = 0; i < graph_.ops.size(); ++i) {
      if (graph_.ops[i].track == no_op) async.push_back(i);
    }
    const auto begins_before = [&](std::uint32_t a, std::uint32_t b) {
      return graph_.ops[a].begin < graph_.ops[b].begin;
    };
    std::sort(async.begin(), async.end(), begins_before);
    using Free = std::pair<std::int64_t, std::uint32_t>;  // the time from which it is free, and the track
    std::priority_queue<Free, std::vector<Free>, std::greater<>> free;
    for (const std::uint32_t i : async) {
      TraceGraph::Op& op = graph_.ops[i];
      if (free.empty() || free.top().first > op.begin) {
        op.track = add_track("async", true);
      } else {
        op.track = free.top().second;
        free.pop();
      }
      free.emplace(op.end, op.track);
    }
  }

  void find_dependences() {
    std::sort(places_.begin(), places_.end(), [](const TracedPlace& a, const TracedPlace& b) {
      if (a.access.var != b.access.var) return std::less<>()(a.access.var, b.access.var);
      return a.access < b.access;
    });
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (i == 0 || !follows(places_[i].access, places_[i - 1].access)) forget();
      pass(places_[i]);
    }
    std::sort(graph_.dependences.begin(), graph_.dependences.end());
    const auto repeats = std::unique(graph_.dependences.begin(), graph_.dependences.end());
    graph_.dependences.erase(repeats, graph_.dependences.end());
  }

  /// Whether no op lies between the places, or only the fence between two kinds of access: a fence that has nothing to
  /// wait for leaves no record.
  static bool follows(const VarPlace& place, const VarPlace& before) {
    if (place.follows(before)) return true;
    if (place.exclusive || before.exclusive || place.commutes == before.commutes) return false;
    const VarPlace fence{.var = before.var, .ticket = before.ticket + 1};
    return fence.follows(before) && place.follows(fence);
  }

  void forget() {
    before_ = no_op;
    beside_.clear();
  }

  void pass(const TracedPlace& place) {
    if (place.op == no_op) return;
    if (place.access.exclusive) {
      if (beside_.empty() && before_ != no_op) graph_.dependences.push_back({before_, place.op});
      for (const std::uint32_t other : beside_) graph_.dependences.push_back({other, place.op});
      forget();
      if (!place.retires) before_ = place.op;
      return;
    }
    if (!beside_.empty() && commuting_ != static_cast<bool>(place.access.commutes)) {
      // When the kind of access changes, the op that ended last represents all: arrows from each op to each would be
      // too many.
      before_ = *std::max_element(beside_.begin(), beside_.end(), [&](std::uint32_t a, std::uint32_t b) {
        return graph_.ops[a].end < graph_.ops[b].end;
      });
      beside_.clear();
    }
    commuting_ = place.access.commutes;
    if (before_ != no_op) graph_.dependences.push_back({before_, place.op});
    beside_.push_back(place.op);
  }

  /// Corrects begins that are too early: the clocks of two cores may differ a little.
  void begin_after_predecessors() {
    for (const auto& [from, to] : graph_.dependences) {
      TraceGraph::Op& op = graph_.ops[to];
      op.begin = std::max(op.begin, std::min(op.end, graph_.ops[from].end));
    }
  }

  void order_ops() {
    std::vector<std::uint32_t> order(graph_.ops.size()), place_of(graph_.ops.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      const TraceGraph::Op &x = graph_.ops[a], &y = graph_.ops[b];
      return std::pair(x.begin, x.end) < std::pair(y.begin, y.end);
    });
    std::vector<TraceGraph::Op> ordered;
    ordered.reserve(order.size());
    for (const std::uint32_t i : order) {
      place_of[i] = static_cast<std::uint32_t>(ordered.size());
      ordered.push_back(std::move(graph_.ops[i]));
    }
    graph_.ops = std::move(ordered);
    for (auto& [from, to] : graph_.dependences) {
      from = place_of[from];
      to = place_of[to];
    }
    std::sort(graph_.dependences.begin(), graph_.dependences.end());
  }

  const Recording& recording_;
  const Policy policy_;
  const TickScale scale_;
  TraceGraph graph_;
  std::vector<TracedPlace> places_;
  std::map<std::string, int> in_role_;
  std::uint32_t track_ = no_op;
  std::map<const LaneState*, std::uint32_t> lane_tracks_;
  // State while the places of one variable are passed: the ops that share the variable now, by reading or by commuting,
  // and the op that they come after.
  std::vector<std::uint32_t> beside_;
  bool commuting_ = false;
  std::uint32_t before_ = no_op;
};

}  // namespace

TraceGraph read_graph(const Recording& recording, const std::vector<LaneWork>& lanes, Policy policy) {
  return TraceReader(recording, lanes, policy).take();
}

}  // namespace windrow
