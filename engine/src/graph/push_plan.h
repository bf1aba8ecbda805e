// What a launch goes by that pushes a graph's ops instead of running them as nodes behind gates, and how long it lives.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/ports.h"
#include "graph/plan.h"
#include "windrow/engine/mutex.h"

namespace windrow {

class Core;
class CoreLink;

/// How many ops that launches have pushed still use a plan. For each thread's port a count of the uses begun there less
/// those ended there, so that neither takes a locked instruction; threads whose ports are younger share one more count.
class PlanUses {
 public:
  /// Of so many ports; `apart` where threads count so often that they should not share lines.
  PlanUses(std::uint32_t ports, bool apart)
      : ports_(ports), shift_(apart ? 3 : 0), counts_(std::make_unique<Count[]>((ports + 1) << shift_)) {}

  /// The port is the calling thread's.
  void begin(const Port& port, std::uint64_t uses) { add(&port, uses); }
  /// The same; null if the port is not at hand. Who finds that there are no more uses may free this.
  void end(const Port* port) { add(port, std::uint64_t{0} - 1); }

  /// Whether all have ended; the caller sees what they did then. Those begun happened before this call, and nobody
  /// begins another. So counts only fall, and their sum is not nought before the last use has ended.
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

/// Immutable but for its uses.
///
/// It goes with the last of its handle (a graph, or a declared op) and its uses. Records of pushed ops hold plain
/// pointers to it, each a use until the record's body ends.
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

  /// The handle needs it no more; it may be null.
  static void let_go(PushPlan* plan) noexcept;

  /// All ops of one launch. Inside an Entry in which the plan was found, so that let_go() comes later.
  void begin_uses(const Port& port) { uses_.begin(port, uses_of_launch_); }
  /// An op's body ends, as the op does on this thread.
  void end_use() noexcept;
  bool unused() const { return uses_.none(); }

  /// Frees it.
  void end() noexcept override { delete this; }

  std::vector<Op> ops;                ///< in few lines of memory, since a small graph's may be cold
  std::vector<Dep::Access> accesses;  ///< those of one op after those of the other
  std::vector<Dep::Access> firsts;    ///< the ops' first access to each variable, by its address
  std::vector<LaneState*> lanes;      ///< that the ops are of

  PushPlan* next_ending = nullptr;  ///< owner: EndingPlans

 private:
  /// If the plan was let go and has no more uses. Captures may wait for what comes behind the op that runs or ends on
  /// this thread, so they go once that has left.
  [[gnu::noinline]] static void end_after_op(Core& core, const PushPlan* maybe_gone) noexcept;

  Core& core_;
  const std::shared_ptr<CoreLink> link_;
  const CapturedOps captured_;
  PlanUses uses_;
  std::uint32_t uses_of_launch_ = 0;  ///< ops with something to call
};

/// What errors of a launch name.
struct LaunchSite {
  OpName name;
  std::source_location from;
};

/// Plans that were let go while ops still used them. Whoever lets go adds the plan, passes the heavy half of an
/// AsymmetricFence, and then looks at the uses; whoever ends a use counts it, passes the light half, and then looks at
/// any(). So of the two, the later one sees what the earlier one did, and takes the plan out if it has no more
/// uses; if both do, the mutex lets one of them find it. An owner. Threads: any.
class EndingPlans {
 public:
  EndingPlans() = default;
  /// Those are left for which a thread had no memory to take them.
  ~EndingPlans();
  EndingPlans(const EndingPlans&) = delete;
  EndingPlans& operator=(const EndingPlans&) = delete;

  bool any() const { return any_.load(std::memory_order_relaxed); }
  void add(PushPlan& plan) noexcept WINDROW_EXCLUDES(mutex_);
  /// The plan if it is here and unused, then it is the caller's; else null. It may be gone: only its address counts,
  /// and a later plan at this address is as good.
  PushPlan* take_if_unused(const PushPlan* plan) noexcept WINDROW_EXCLUDES(mutex_);

  void each_mutex(EachMutex f) { f(mutex_); }  // see fork.h

 private:
  /// Many plans may end while an early op keeps the others' from running: one list would be long.
  using Lists = std::array<PushPlan*, 256>;
  static std::size_t list_of(const PushPlan* plan) {
    return reinterpret_cast<std::uintptr_t>(plan) / 64 % std::tuple_size_v<Lists>;
  }

  Mutex mutex_;
  Lists lists_ WINDROW_GUARDED_BY(mutex_){};  // the first plan of each list_of()
  std::size_t count_ WINDROW_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> any_{false};  // written under mutex_
};

/// Behind DeclaredOp: pushed as a graph of this op alone.
struct DeclaredState {
  DeclaredState() = default;
  ~DeclaredState() { PushPlan::let_go(pushes); }
  DeclaredState(const DeclaredState&) = delete;
  DeclaredState& operator=(const DeclaredState&) = delete;

  // Fixed by Core::declare:
  std::uint32_t engine = 0;  ///< its number
  std::shared_ptr<CapturedOp> op;
  std::vector<Access> accesses;
  PushOptions how;  ///< without the stop token, which the function knows
  std::atomic<PushPlan*> pushes{nullptr};
};

}  // namespace windrow
