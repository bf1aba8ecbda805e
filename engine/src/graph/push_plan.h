// The plan of launches that push a graph's ops, instead of running them as nodes behind gates, and its lifetime.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/ports.h"
#include "graph/plan.h"
#include "windrow/engine/internal/mutex.h"

namespace windrow {

class Core;
class CoreLink;

/// Counts the ops pushed by launches that still use a plan. Each thread's port has a count of the uses begun there
/// minus those ended there, so neither takes a locked instruction. Threads whose ports are younger share one more
/// count.
class PlanUses {
 public:
  /// `ports`: the number of ports that have a count of their own. `apart`: threads count so often that their counts
  /// should not share cache lines.
  PlanUses(std::uint32_t ports, bool apart)
      : ports_(ports), shift_(apart ? 3 : 0), counts_(std::make_unique<Count[]>((ports + 1) << shift_)) {}

  /// `port` is the calling thread's.
  void begin(const Port& port, std::uint64_t uses) { add(&port, uses); }
  /// `port` is the calling thread's, or null if it is not at hand. A thread that finds no more uses may free this
  /// object.
  void end(const Port* port) { add(port, std::uint64_t{0} - 1); }

  /// Whether all uses have ended; if so, the caller sees what they did. The begins of all uses must happen before this
  /// call, and no thread may begin another. So counts only fall, and their sum is not 0 before the last use has ended.
  bool none() const {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i <= ports_; ++i) sum += count(i).load(std::memory_order_acquire);
    return sum == 0;
  }

 private:
  using Count = std::atomic<std::uint64_t>;
  Count& count(std::uint32_t port) const { return counts_[port << shift_]; }
  [[gnu::always_inline]] void add(const Port* port, std::uint64_t more) {
    if (port != nullptr && port->number < ports_) [[likely]] {
      Port::add(count(port->number), more);
    } else {
      count(ports_).fetch_add(more, std::memory_order_acq_rel);
    }
  }

  const std::uint32_t ports_, shift_;
  const std::unique_ptr<Count[]> counts_;
};

/// Immutable except for its uses.
///
/// A plan is freed once its handle (a graph, or a declared op) and all its uses have ended. Records of pushed ops hold
/// plain pointers to it; each pointer is a use until the record's body ends.
class PushPlan final : public EndedPart {
 public:
  struct Op {
    CapturedOp* captured;
    const OpInfo* info;
    int priority;
    OpRecord::Body kind;
    std::uint32_t access_count;
  };

  PushPlan(Core& core, CapturedOps captured);
  PushPlan(const PushPlan&) = delete;
  PushPlan& operator=(const PushPlan&) = delete;

  /// The handle no longer needs the plan, which may be null.
  static void let_go(PushPlan* plan) noexcept;

  /// Begins the uses of all ops of one launch. Called inside an Entry in which the plan was found, so let_go() comes
  /// later.
  void begin_uses(const Port& port) { uses_.begin(port, uses_of_launch_); }
  /// Called when an op's body ends, on the thread on which the op ends.
  void end_use() noexcept;
  bool unused() const { return uses_.none(); }

  /// Frees the plan.
  void end() noexcept override { delete this; }

  std::vector<Op> ops;                ///< in few cache lines, since those of a small graph may be cold
  std::vector<Dep::Access> accesses;  ///< op by op
  std::vector<Dep::Access> firsts;    ///< the ops' first access to each variable, sorted by its address
  std::vector<LaneState*> lanes;      ///< the ops' lanes

  PushPlan* next_ending = nullptr;  ///< owner: EndingPlans

 private:
  /// Ends the plan if it was let go and has no more uses. Destroying captures may wait for ops behind the op that runs
  /// or ends on this thread, so the plan is freed once that op has left.
  [[gnu::noinline]] static void end_after_op(Core& core, const PushPlan* maybe_gone) noexcept;

  Core& core_;
  const std::shared_ptr<CoreLink> link_;
  const CapturedOps captured_;
  PlanUses uses_;
  std::uint32_t uses_of_launch_ = 0;  ///< the number of ops that have something to call
};

/// The launch that an error message names.
struct LaunchSite {
  OpName name;
  std::source_location from;
};

/// Plans that were let go while ops still used them. A thread that lets go adds the plan, passes the heavy half of an
/// AsymmetricFence, and then looks at the uses. A thread that ends a use counts it, passes the light half, and then
/// looks at any(). So of two such threads, the later one sees what the earlier one did, and takes the plan out if it
/// has no more uses; if both do, the mutex lets only one of them find it. An owner. Threads: any.
class EndingPlans {
 public:
  EndingPlans() = default;
  /// Frees the plans that are left because a thread had no memory to take them.
  ~EndingPlans();
  EndingPlans(const EndingPlans&) = delete;
  EndingPlans& operator=(const EndingPlans&) = delete;

  bool any() const { return any_.load(std::memory_order_relaxed); }
  void add(PushPlan& plan) noexcept WINDROW_EXCLUDES(mutex_);
  /// Takes the plan out if it is here and unused, and makes the caller its owner; otherwise returns null. The plan may
  /// be gone already: only its address counts, and a later plan at the same address is as good.
  PushPlan* take_if_unused(const PushPlan* plan) noexcept WINDROW_EXCLUDES(mutex_);

  void each_mutex(EachMutex f) { f(mutex_); }  // see fork.h

 private:
  /// Many plans may be ending while an early op keeps the others' ops from running: a single list would be long.
  using Lists = std::array<PushPlan*, 256>;
  static std::size_t list_of(const PushPlan* plan) {
    return reinterpret_cast<std::uintptr_t>(plan) / 64 % std::tuple_size_v<Lists>;
  }

  Mutex mutex_;
  Lists lists_ WINDROW_GUARDED_BY(mutex_){};  // the first plan of each list_of()
  std::size_t count_ WINDROW_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> any_{false};  // written under mutex_
};

/// The state behind DeclaredOp, which is pushed as a graph of one op.
struct DeclaredState {
  DeclaredState() = default;
  ~DeclaredState() { PushPlan::let_go(pushes); }
  DeclaredState(const DeclaredState&) = delete;
  DeclaredState& operator=(const DeclaredState&) = delete;

  // Fixed by Core::declare:
  std::uint32_t engine = 0;  ///< the engine's number
  std::shared_ptr<CapturedOp> op;
  std::vector<Access> accesses;
  PushOptions how;  ///< without the stop token, which the function knows
  std::atomic<PushPlan*> pushes{nullptr};
};

}  // namespace windrow
