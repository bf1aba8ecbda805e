// Cuts the nodes of a record into runs while they are recorded. See Runs.
#pragma once

#include <algorithm>
#include <utility>

#include "lazy/nodes.h"

namespace windrow::lazy {

/// The most nodes of a run. The cost of planning a kind grows faster than its number of nodes.
inline constexpr NodeId most_nodes = 256;

class RunCutter {
 public:
  explicit RunCutter(Nodes& nodes) : nodes_(nodes) {}
  struct Begin {
    NodeId node;
    bool apart;  ///< the first run after cut()
  };
  /// The begins of runs in ascending order, from a node that begins a run, as the first node of a flush does.
  std::span<const Begin> begins(NodeId from) const {
    const std::int32_t first = from < nodes_.size() ? nodes_[from].run : next_run();
    return {begins_.from(first), at(next_run() - first)};
  }
  std::int32_t next_run() const { return begins_.end(); }
  /// Starts a new run at the next node, because another instance records it.
  void cut() { cut_ = true; }
  bool take_cut() { return std::exchange(cut_, false); }

  /// Reserves memory for a run, so that adding it cannot throw.
  void reserve() { begins_.make_room(1); }
  /// Reserves memory, so that add_last() of a node with this many operands cannot throw.
  void reserve_last(std::size_t operands) {
    reserve();
    if (latest_.size() < nodes_.keys.size()) latest_.resize(nodes_.keys.size(), -1);
    make_room(outside_, operands);
  }
  /// The last node, which has no run yet, joins the last run or begins one.
  void add_last(std::span<const NodeId> operands) {
    const NodeId id = nodes_.size() - 1;
    const bool apart = take_cut(), fits = !apart && joins(id, operands);
    const NodeId cycle = fits ? repeated_by(id) : 0;
    if (fits && cycle == 0) {
      nodes_.last().run = nodes_[id - 1].run;
    } else {
      outside_.clear();
      for (NodeId operand : operands) outside_.push_back(nodes_[operand].run);
      nodes_.last().run = next_run();
      begins_.push_back({id, apart});
      cycle_ = cycle;
    }
    follow_period(id);
  }
  /// Adds a run that ends with the last node, and that no other node joins.
  void add_closed(Begin begin) {
    begins_.push_back(begin);
    closed_ = nodes_.size();
  }
  void forget_before(NodeId begin) { begins_.forget_before(nodes_[begin].run); }
  void clear() {
    closed_ = 0;
    begins_.clear();
    latest_.clear();
    outside_.clear();
  }

 private:
  /// Whether the node joins the last run. A run consists of consecutive nodes; each has an operand in the run, or an
  /// operand in runs that the run already has operands of. So no run that this run depends on can depend on it.
  /// An operand that is already computed joins a node only to a node with the same key: the loss of a value that the
  /// program has read should not join the next step that uses the value.
  bool joins(NodeId id, std::span<const NodeId> operands) const {
    constexpr std::size_t most_outside = 16;
    if (id == nodes_.first_pending || id == closed_) return false;
    const std::int32_t current = nodes_[id - 1].run;
    if (id - begins_.back().node >= most_nodes || outside_.size() > most_outside) return false;
    bool related = false;
    for (NodeId operand : operands) {
      const std::int32_t run = nodes_[operand].run;
      if (run != current && std::find(outside_.begin(), outside_.end(), run) == outside_.end()) return false;
      related |= operand >= nodes_.first_pending || nodes_.same_key(id, id - 1);
    }
    return related;
  }
  /// The period, if the run is a repetition and a new period begins with this node; otherwise 0. Such a run is cut:
  /// otherwise a chain of equal cells would be another pattern for each length. A few similar operations, such as sums
  /// of products, do not count as a chain.
  NodeId repeated_by(NodeId id) const {
    constexpr NodeId chain = 12;  // nodes
    const NodeId begin = begins_.back().node;
    if (cycle_ > 0 && id - begin == cycle_ && nodes_.same_key(id, begin)) return cycle_;
    const bool goes_on = period_ > 0 && nodes_.same_key(id, id - period_);
    return goes_on && repeated_ >= std::max(period_, chain - period_) ? period_ : 0;
  }
  /// Updates period_ and repeated_ after each node.
  void follow_period(NodeId id) {
    constexpr NodeId longest = 64;
    const NodeId latest = std::exchange(latest_[nodes_[id].key], id);  // of the same key, here or in an earlier run
    const NodeId before = id - begins_.back().node;
    if (period_ > 0 && period_ <= before && nodes_.same_key(id, id - period_)) {
      ++repeated_;
      return;
    }
    const bool repeats = latest >= 0 && id - latest <= std::min(before, longest);
    period_ = repeats ? id - latest : 0;
    repeated_ = repeats ? 1 : 0;
  }

  Nodes& nodes_;
  Tail<Begin> begins_;                 // by run
  std::vector<std::int32_t> outside_;  // runs that contain operands of the last run
  std::vector<NodeId> latest_;         // by key: its latest node, or -1
  bool cut_ = false;                   // the next node begins a run and is apart
  NodeId closed_ = 0;                  // nodes before it belong to closed runs, or to runs before those
  NodeId cycle_ = 0;                   // if the last run continues a repetition: the length of its period; else 0
  NodeId period_ = 0, repeated_ = 0;   // the last `repeated_` nodes have the keys of the nodes a period before
};

}  // namespace windrow::lazy
