// One launch of a graph: a record for each of its ops, and the counters.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "graph/plan.h"

namespace windrow {

/// Used for one launch after another; its plan owns it. Records reset themselves as they finish, so only a launch's
/// gates cost time, not its ops.
class GraphLaunch {
 public:
  struct Gate {
    std::uint32_t ticket = 0;
    std::atomic<std::uint32_t> departures{0};
  };

  /// Throws std::bad_alloc.
  explicit GraphLaunch(const GraphPlan& plan);
  ~GraphLaunch();
  GraphLaunch(const GraphLaunch&) = delete;
  GraphLaunch& operator=(const GraphLaunch&) = delete;

  OpRecord& record(std::uint32_t node) { return *reinterpret_cast<OpRecord*>(records_.get() + node * record_bytes); }
  std::span<Gate> gates() { return {gates_.get(), plan_.gates().size()}; }
  /// The records of the gates, in their variables' chains; made anew for each launch.
  std::span<OpRecord*> gate_records() { return {gate_records_.get(), plan_.gates().size()}; }
  const GraphPlan& plan() const { return plan_; }
  /// The place, at its variable, of the node's access with that number.
  VarPlace place(const PlanNode& node, std::size_t access) const;
  /// Subtracts one of the grants for which the node waits. Returns its record if it is ready now, else null.
  OpRecord* grant(PlanNode::Successor successor) {
    OpRecord& op = record(successor.node);
    // acquire, acq_rel: what every predecessor wrote is visible to the thread that runs the op. If only one grant is
    // missing, no other thread counts, so no locked instruction is needed.
    if (!successor.waits_for_one && op.pending.load(std::memory_order_acquire) != 1 &&
        op.pending.fetch_sub(1, std::memory_order_acq_rel) != 1) {
      return nullptr;
    }
    op.set_id(first_id + successor.node);
    return &op;
  }
  /// Gives the launch back to its plan, which may be destroyed by this. To be called once the op in which the launch
  /// ended has left: destroying captures runs user code, which may wait for ops behind that op.
  void end() noexcept {
    const std::shared_ptr<GraphPlan> plan = std::move(keeps);
    plan->give_back(*this);
  }
  AsyncBody& async(std::uint32_t node) { return *asyncs_[node]; }

  OpId first_id = 0;                  ///< of its op with number 0
  GraphLaunch* next_ended = nullptr;  ///< owner: the port of the thread on which the launch ended
  /// Keeps the plan alive while the launch is under way.
  std::shared_ptr<GraphPlan> keeps;
  /// The number of ends still to come, plus one for the thread that launches.
  std::atomic<std::int32_t> to_come{0};
  /// The list of all launches under way; guarded by Launches::mutex.
  GraphLaunch *next = nullptr, *previous = nullptr;

 private:
  static constexpr std::size_t record_bytes = 64;
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete(memory, std::align_val_t(64)); }
  };

  const GraphPlan& plan_;
  std::unique_ptr<std::byte, Free> records_;
  std::unique_ptr<Gate[]> gates_;
  std::unique_ptr<OpRecord*[]> gate_records_;
  std::vector<std::unique_ptr<AsyncBody>> asyncs_;  // by node; empty if there are none
};

}  // namespace windrow
