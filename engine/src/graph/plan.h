// The plan of a graph, which its launches share: its ops, the successors of each, and where the graph meets variables.
//
// A launch has up to three places in the chain of each variable, its gates: one for the reads before the graph's first
// write, one from the first write to the last, and one for the reads after that. So an op inside waits only for its own
// inputs, and an op that reads the variable after the launch waits only for the last write.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "record/op.h"
#include "windrow/engine/internal/mutex.h"

namespace windrow {

class GraphLaunch;

class CoreLink;

/// A captured or declared op. Immutable afterwards, except for the function's own state, atomics, and fields that name
/// their writer.
struct alignas(64) CapturedOp {
  CapturedOp() = default;
  /// On an ordered lane, the engine keeps the function until the work that it has issued is done.
  ~CapturedOp();
  CapturedOp(const CapturedOp&) = delete;
  CapturedOp& operator=(const CapturedOp&) = delete;

  enum class Retires {
    nothing,
    own,      ///< a variable of the graph, whose life begins anew with the next launch
    foreign,  ///< a variable from outside; it ends with the only launch, or with the graph
  };

  OpFunction function;  ///< empty for async ops, and for ops that do nothing
  AsyncFunction async;
  OpRecord::Body kind = OpRecord::Body::none;
  const OpInfo* info = nullptr;
  int priority = 0;
  Retires retires = Retires::nothing;
  /// Whether the only launch has retired the foreign variable. Written by the op, read when no launch is left.
  bool has_retired = false;
  /// For an op that retires a foreign variable: used in the error of a second launch. Fixed when the capture ends.
  struct Retired {
    const char* variable = "";
    std::source_location captured_at = {};
    const char* owner = nullptr;  ///< see EngineUse::retire(); null if the program itself retires the variable
  };
  Retired retired;
  /// The graph whose launch has retired the foreign variable; null before. Use it only for comparison: the graph may be
  /// gone.
  std::atomic<const void*> launched_by{nullptr};
  std::atomic<bool> dropped{false};   ///< of a declared op: no handle is left
  std::vector<Dep::Access> accesses;  ///< canonical
  std::shared_ptr<CoreLink> core;     ///< of an op on an ordered lane

  bool owns_captures() const {
    const auto owns = [](const auto& f) { return f && f.table()->owns; };
    return owns(function) || owns(async);
  }
  Captures take_captures() noexcept {
    if (kind == OpRecord::Body::async) return std::move(async);
    return std::move(function);
  }
};

using CapturedOps = std::vector<std::shared_ptr<CapturedOp>>;

/// One op of the plan, in one cache line, so that running it costs one miss.
struct alignas(64) PlanNode {
  /// The number of a successor, and whether this node is all that it waits for.
  struct Successor {
    std::uint32_t node : 31;
    std::uint32_t waits_for_one : 1;
  };

  CapturedOp* op = nullptr;
  OpFunction* function = nullptr;         ///< null if running the op takes more than a call of a function
  const Successor* successors = nullptr;  ///< `successor_count` of them
  VarState* const* written = nullptr;
  const std::uint32_t* gates_to_leave = nullptr;
  std::uint32_t successor_count = 0, written_count = 0, gate_count = 0;
  std::uint32_t awaits = 0;  ///< the number of nodes and gates that it waits for
  std::uint32_t number = 0;
  Successor first_successor{};  ///< copy of successors[0], if any; it determines the next cache line that is needed
};

/// One place that each launch has at a variable.
struct PlanGate {
  Dep::Access access;                ///< the access of the launch's record there
  bool retires = false;              ///< whether it retires the variable, with the graph's last op on it
  bool counts_its_grant = false;     ///< no node waits for it; it leaves when its nodes are done and it was granted
  std::uint32_t accesses = 0;        ///< the number of accesses of nodes that go through it
  std::uint32_t departures = 0;      ///< the number of departures that it waits for before it leaves
  std::vector<std::uint32_t> opens;  ///< the nodes that wait for it
};

class GraphPlan {
 public:
  GraphPlan(CapturedOps ops, std::vector<std::shared_ptr<const void>> owned);
  ~GraphPlan();
  GraphPlan(const GraphPlan&) = delete;
  GraphPlan& operator=(const GraphPlan&) = delete;

  std::size_t size() const { return nodes_.size(); }
  const CapturedOps& ops() const { return ops_; }
  std::span<const PlanNode> nodes() const { return nodes_; }
  std::span<const PlanGate> gates() const { return gates_; }
  /// The gate that an access of a node goes through, and the number of accesses through that gate before it.
  struct Passage {
    std::uint32_t gate, within;
  };
  const Passage& passage(const PlanNode& node, std::size_t access) const {
    return passages_[first_access_[node.number] + access];
  }
  std::span<const PlanNode::Successor> successors_of(const PlanNode& node) const {
    return {node.successors, node.successor_count};
  }
  std::span<const std::uint32_t> roots() const { return roots_; }
  std::span<LaneState* const> lanes() const { return lanes_; }
  /// The ops that retire variables from outside. If there are any, only one launch is possible.
  std::span<CapturedOp* const> retiring() const { return retiring_; }
  /// The number of gates, and of nodes with neither gates to leave nor successors: a launch ends with the last of them.
  std::int32_t ends() const { return ends_; }

  /// A launch that is not under way. Throws std::bad_alloc.
  GraphLaunch& take() WINDROW_EXCLUDES(mutex_);
  void give_back(GraphLaunch& launch) noexcept WINDROW_EXCLUDES(mutex_);

 private:
  class Analysis;

  const CapturedOps ops_;
  const std::vector<std::shared_ptr<const void>> owned_;  // variables
  // Fixed by the constructor:
  std::vector<PlanNode> nodes_;
  std::vector<PlanGate> gates_;  // by address of the variable, then in order
  std::vector<PlanNode::Successor> successors_;
  std::vector<VarState*> written_;
  std::vector<std::uint32_t> gates_to_leave_, first_access_, roots_;
  std::vector<Passage> passages_;  // by node and access
  std::vector<LaneState*> lanes_;
  std::vector<CapturedOp*> retiring_;
  std::int32_t ends_ = 0;

  Mutex mutex_;
  std::vector<std::unique_ptr<GraphLaunch>> launches_ WINDROW_GUARDED_BY(mutex_);
  std::vector<GraphLaunch*> free_ WINDROW_GUARDED_BY(mutex_);
};

}  // namespace windrow
