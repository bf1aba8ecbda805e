// Lower bounds of the bytes that a placement takes.
#include <algorithm>
#include <bit>
#include <utility>

#include "lifetimes.h"

namespace windrow {
namespace {

/// Flow from buffers (sources) to buffers that end before them (sinks); each sends and receives at most its bytes.
/// Buffers are in the order in which they begin, so a buffer ends before another one if they are not together and it
/// has the smaller number. Only the arcs with flow are stored.
class LifeFlow {
 public:
  explicit LifeFlow(const Lifetimes& lifetimes)
      : together_(lifetimes.together), to_send_(lifetimes.buffers.size()), received_from_(lifetimes.buffers.size()) {
    for (std::size_t i = 0; i < to_send_.size(); ++i) to_send_[i] = lifetimes.buffers[i].bytes;
    to_receive_ = to_send_;
    for (const Lifetimes::Overlay& overlay : lifetimes.overlays) {
      together_.clear(overlay.operand, overlay.result);
      together_.clear(overlay.result, overlay.operand);
    }
  }

  /// Augments the flow until it is maximal. Returns false if that takes too long.
  bool maximise() {
    for (int pass = 0; pass < most_passes; ++pass) {
      unseen_.assign((to_send_.size() + 63) / 64, ~std::uint64_t{0});
      std::size_t sent = 0;
      for (std::size_t source = 0; source < to_send_.size(); ++source) {
        for (std::size_t more = 1; to_send_[source] > 0 && more > 0; sent += more) more = augment(source);
      }
      if (sent == 0) return true;
    }
    return false;
  }
  std::size_t not_sent() const {
    std::size_t sum = 0;
    for (const std::size_t bytes : to_send_) sum += bytes;
    return sum;
  }

 private:
  static constexpr int most_passes = 400;
  static constexpr std::size_t none = ~std::size_t{0};
  struct Arc {
    std::size_t source, flow;
  };
  struct Hop {  // of a path: source -> sink, whose next one takes back flow of `arc` at that sink
    std::size_t source;
    std::size_t sink = none;
    std::size_t arc = 0;  // of received_from_[sink]
  };

  /// Sends bytes along one path; returns how many. Sinks from which no path goes on stay seen for the rest of a pass.
  std::size_t augment(std::size_t source) {
    std::vector<Hop> path{{source}};
    while (!path.empty()) {
      Hop& hop = path.back();
      if (hop.sink == none) {
        hop.sink = take_unseen(hop.source);
        hop.arc = 0;
        if (hop.sink == none) {
          path.pop_back();
          if (!path.empty()) ++path.back().arc;
          continue;
        }
        if (to_receive_[hop.sink] > 0) return send(path);
      }
      const auto& arcs = received_from_[hop.sink];
      while (hop.arc < arcs.size() && (arcs[hop.arc].flow == 0 || arcs[hop.arc].source == hop.source)) ++hop.arc;
      if (hop.arc == arcs.size()) {
        hop.sink = none;
      } else {
        path.push_back({arcs[hop.arc].source});
      }
    }
    return 0;
  }

  /// The first unseen sink that the source may send to.
  std::size_t take_unseen(std::size_t source) {
    const std::uint64_t* const together = together_.words(source);
    for (std::size_t word = 0; word * 64 < source; ++word) {
      std::uint64_t sinks = unseen_[word] & ~together[word];
      if ((word + 1) * 64 > source) sinks &= (std::uint64_t{1} << (source % 64)) - 1;
      if (sinks == 0) continue;
      const auto bit = static_cast<std::size_t>(std::countr_zero(sinks));
      unseen_[word] &= ~(std::uint64_t{1} << bit);
      return word * 64 + bit;
    }
    return none;
  }

  std::size_t send(const std::vector<Hop>& path) {
    const std::size_t last = path.back().sink;
    std::size_t bytes = std::min(to_send_[path.front().source], to_receive_[last]);
    for (std::size_t i = 0; i + 1 < path.size(); ++i) {
      bytes = std::min(bytes, received_from_[path[i].sink][path[i].arc].flow);
    }
    for (std::size_t i = 0; i < path.size(); ++i) {
      auto& arcs = received_from_[path[i].sink];
      if (i + 1 < path.size()) arcs[path[i].arc].flow -= bytes;
      add(arcs, path[i].source, bytes);
    }
    to_send_[path.front().source] -= bytes;
    to_receive_[last] -= bytes;
    if (to_receive_[last] > 0) unseen_[last / 64] |= std::uint64_t{1} << (last % 64);
    for (const Hop& hop : path) unseen_[hop.sink / 64] |= std::uint64_t{1} << (hop.sink % 64);
    return bytes;
  }

  static void add(std::vector<Arc>& arcs, std::size_t source, std::size_t bytes) {
    for (Arc& arc : arcs) {
      if (arc.source != source && arc.flow > 0) continue;  // an arc without flow is as good as none
      arc = {source, arc.source == source ? arc.flow + bytes : bytes};
      return;
    }
    arcs.push_back({source, bytes});
  }

  BitRows together_;
  std::vector<std::size_t> to_send_, to_receive_;  // by buffer
  std::vector<std::vector<Arc>> received_from_;    // by sink
  std::vector<std::uint64_t> unseen_;              // sinks that no path of this pass has come to, as bits
};

}  // namespace

std::size_t antichain_of(const Lifetimes& lifetimes) {
  LifeFlow flow(lifetimes);
  return flow.maximise() ? flow.not_sent() : 0;
}

std::size_t peak_of(const Lifetimes& lifetimes, const PartialOrder& order) {
  // Changes of the bytes alive: a moment's decreases come before its increases.
  std::vector<std::pair<std::int64_t, std::ptrdiff_t>> changes;
  const auto add = [&](PartialOrder::Time time, std::ptrdiff_t bytes) {
    changes.emplace_back(time.begin, bytes);
    changes.emplace_back(time.end, -bytes);
  };
  for (const auto& buffer : lifetimes.buffers) add(buffer.time, static_cast<std::ptrdiff_t>(buffer.bytes));
  std::vector<std::size_t> shared(lifetimes.buffers.size());  // by result, which is laid over one operand
  for (const Lifetimes::Overlay& overlay : lifetimes.overlays) {
    const std::size_t most =
        std::min(lifetimes.buffers[overlay.operand].bytes, lifetimes.buffers[overlay.result].bytes);
    shared[overlay.result] = std::max(shared[overlay.result], most);
  }
  for (const Lifetimes::Overlay& overlay : lifetimes.overlays) {
    add(order.times()[overlay.step], -static_cast<std::ptrdiff_t>(std::exchange(shared[overlay.result], 0)));
  }
  std::sort(changes.begin(), changes.end());
  std::ptrdiff_t alive = 0, peak = 0;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    alive += changes[i].second;
    if (i + 1 == changes.size() || changes[i + 1].first != changes[i].first) peak = std::max(peak, alive);
  }
  return static_cast<std::size_t>(peak);
}

}  // namespace windrow
