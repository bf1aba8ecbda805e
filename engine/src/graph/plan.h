// What a graph's launches share: its ops, the successors of each, and where the graph meets variables.
//
// At each variable a launch stands in the chain with up to three places, its gates: one for the reads before the
// graph's first write, one from the first write to the last, and one for the reads after that. So an op inside waits
// for no more than its own inputs, and whoever reads the variable behind the launch waits for the last write only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/op.h"
#include "windrow/engine/mutex.h"

namespace windrow {

class GraphLaunch;

/// What ends on a thread inside an op, and goes once that op has left: its end may run user code, which may wait for
/// what comes behind the op.
struct EndedPart {
  /// It may be gone then.
  virtual void end() noexcept = 0;

  EndedPart* next_ended = nullptr;  ///< owner: the port of the thread
  OpId first_id = 0;                ///< of a launch, the op with number 0; of a plan, the op that used it last

 protected:
  EndedPart() = default;
  ~EndedPart() = default;
  EndedPart(const EndedPart&) = delete;
  EndedPart& operator=(const EndedPart&) = delete;
};

/// An op as it was captured. Never changed after its capture, but for the function's own state and has_retired.
struct alignas(64) CapturedOp {
  enum class Retires {
    nothing,
    own,      ///< a variable of the graph, whose life begins anew with the next launch
    foreign,  ///< one from outside, with the first launch, which is the last, or with the graph
  };

  OpFunction function;  ///< empty for async ops, and those that do nothing
  AsyncFunction async;
  OpRecord::Body kind = OpRecord::Body::none;
  const OpInfo* info = nullptr;
  int priority = 0;
  Retires retires = Retires::nothing;
  bool has_retired = false;  ///< a foreign variable, in the only launch; written by the op, read when no launch is left
  std::vector<Dep::Access> accesses;  ///< canonical
};

using CapturedOps = std::vector<std::shared_ptr<CapturedOp>>;

/// One op of the plan; one line of memory, so that running it costs one miss.
struct alignas(64) PlanNode {
  /// Of a successor, its number; and whether this is all that it waits for.
  struct Successor {
    std::uint32_t node : 31;
    std::uint32_t waits_for_one : 1;
  };

  CapturedOp* op = nullptr;
  OpFunction* function = nullptr;         ///< null if running it takes more than a call
  const Successor* successors = nullptr;  ///< and how many, below
  VarState* const* written = nullptr;
  const std::uint32_t* gates_to_leave = nullptr;
  std::uint32_t successor_count = 0, written_count = 0, gate_count = 0;
  std::uint32_t awaits = 0;  ///< nodes and gates
  std::uint32_t number = 0;
  Successor first_successor{};  ///< if there are any; here too, since which line comes next hangs on it
};

/// One place of each launch at a variable.
struct PlanGate {
  Dep::Access access;                ///< what the launch's record there is made of
  bool retires = false;              ///< the variable, with the graph's last op on it
  bool counts_its_grant = false;     ///< nodes do not await it; it leaves when they are done and it was granted
  std::uint32_t accesses = 0;        ///< of nodes
  std::uint32_t departures = 0;      ///< that it waits for before it leaves
  std::vector<std::uint32_t> opens;  ///< the nodes that await it
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
  /// Through which gate the node has an access, and how many accesses through that gate come before it.
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
  /// Whether a launch comes cheaper if it pushes the ops; see push_plan.h.
  bool pushing_is_cheaper() const { return pushing_is_cheaper_; }
  /// Gates, and nodes with neither gates to leave nor successors: with the last of them a launch ends.
  std::int32_t ends() const { return ends_; }

  /// One that is not under way. Throws std::bad_alloc.
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
  std::int32_t ends_ = 0;
  bool pushing_is_cheaper_ = false;

  Mutex mutex_;
  std::vector<std::unique_ptr<GraphLaunch>> launches_ WINDROW_GUARDED_BY(mutex_);
  std::vector<GraphLaunch*> free_ WINDROW_GUARDED_BY(mutex_);
};

}  // namespace windrow
