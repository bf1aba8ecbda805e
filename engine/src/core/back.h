// The back of an engine: moves granted ops on, runs them, and finishes them, even when memory has run out.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <unordered_map>

#include "core/ending.h"
#include "diagnosis/access_check.h"
#include "policy/running_policy.h"
#include "record/failure.h"
#include "record/running.h"
#include "windrow/engine/internal/mutex.h"

namespace windrow {

/// Takes the op's turns at all variables on which it commutes. Otherwise takes none, and keeps the op until a retry may
/// succeed. Ops that were kept, and should retry now, go to `others`. In commuting.cc.
bool take_turns(OpRecord& op, ReadyList& others) noexcept;
void end_turns(OpRecord& op, ReadyList& others) noexcept;

class Back {
 public:
  explicit Back(Core& core);
  Back(const Back&) = delete;
  Back& operator=(const Back&) = delete;

  /// Runs the op, then successors that it makes ready, for as long as the policy lets this thread choose its next op.
  /// `slots` is null only for an op that runs after shutdown.
  void run(OpRecord& op, Slots* slots) noexcept;
  /// Runs the op, and returns the next one of this thread, or null.
  OpRecord* run_one(OpRecord& op, OpsInARow& row);
  /// Called when the OnComplete of an async op is called or dropped.
  void complete(OpRecord& op, std::exception_ptr outcome) noexcept;
  /// The outcome of an op whose OnComplete was dropped: a new exception or, if there is no memory, `dropped_`.
  std::exception_ptr dropped() const noexcept;

  /// Called when the op's accesses are granted: gives the op to the policy, or keeps it until it may run.
  void release(OpRecord& op) noexcept;
  void release(OpRecord& op, ReadyList& ready) noexcept;
  void release_all(ReadyList& ready) noexcept;
  /// Releases what an op on these slots made ready. Returns the op that this thread runs next: `next`, another one, or
  /// null.
  OpRecord* go_on(OpRecord* next, ReadyList& others, Slots* slots) noexcept;
  void one_less_pending(Port& port);
  /// The poison of a variable that the op uses, or the failure of a lane that it awaited; null if there is none.
  FailurePtr first_poison(OpRecord& op);
  /// An op that awaits a point, and the op that left the point.
  struct PointAwaited {
    OpRecord& op;
    IfFailed if_failed;
    const OpInfo& left_by;
  };
  void point_reached(const PointAwaited& awaited, const std::exception_ptr& error) noexcept;
  FailurePtr lost(const OpInfo& of, const std::exception_ptr& error) noexcept;

  /// Reasons for which ops may not take the fast path; by_ordered_lanes holds unless is_apart_from_lanes().
  enum Detour : unsigned { by_ordered_lanes = 1, by_trace = 2, by_check = 4, by_end = 8, by_leak = 16, by_exit = 32 };
  std::atomic<unsigned> detours{0};
  bool has_ordered() const { return (detours & by_ordered_lanes) != 0; }

  FailureLog failures;
  std::atomic<std::uint64_t> failed{0}, skipped{0}, cancelled{0};
  const std::unique_ptr<AccessCheck> access_check;  ///< null unless options.check
  Mutex point_mutex;

 private:
  /// Whether a thread that ran an op on these slots may choose this ready one as its next op.
  static bool may_go_on(const OpRecord& op, const Slots* slots) {
    return slots != nullptr && op.priority == 0 && slots->goes_on_with(op.info().lane);
  }
  /// True if a granted op may run without further checks. False only means that the checks are needed.
  [[gnu::always_inline]] bool is_plainly_ready(OpRecord& op) const {
    return !op.after_end && !op.commutes() && !op.is_wait() && (!has_ordered() || is_apart_from_lanes(op));
  }
  /// Whether to give the op, whose accesses are granted, to the policy now.
  bool may_run(OpRecord& op, ReadyList& ready) noexcept;
  bool points_reached(OpRecord& op);
  /// Counts `points` of the awaited points as reached. Returns whether these were the last.
  static bool were_last_points(OpRecord& op, std::int32_t points);
  /// Whether the op may go to the policy. If not, its lane keeps it, or, after the engine's end, it has run already.
  bool admit(OpRecord& op);
  void end_fence(OpRecord& op, ReadyList& ready) noexcept;

  // Each of these runs an op, and returns the next one of this thread, or null.
  /// Runs an op that cannot take the fast path; run_with_care() is the slowest path, which handles every op.
  OpRecord* run_detoured(OpRecord& op, OpsInARow& row);
  /// The fast path: an op with a function, on a host lane, that nothing keeps from running.
  OpRecord* run_function(OpRecord& op, OpsInARow& row);
  /// The fast path for an op of a launch, and then for its successors.
  OpRecord* run_nodes(OpRecord& first, OpsInARow& row);
  OpRecord* run_with_care(OpRecord& op, const Begin& begin);
  OpRecord* run_async(OpRecord& op, const Begin& begin, FailurePtr poison);
  OpRecord* finish_async(OpRecord& op, Slots* slots);
  OpRecord* end_plain(OpRecord* next, ReadyList& others, OpsInARow& row);
  OpRecord* finish(OpRecord& op, const Ending& ending) noexcept;
  /// Takes the op out of its variables' chains. Calls settle(access) for each access while the op still has it. The
  /// op's record may be freed by then.
  template <class Settle>
  void leave(OpRecord& op, ReadyList& ready, Settle&& settle);
  /// Finishes an op whose function has thrown. Call it from the catch clause.
  OpRecord* fail(OpRecord& op, const OpsInARow& row);

  /// Whether other ready ops get a turn before the thread continues with a successor.
  bool gives_way(const OpsInARow& row) const;
  /// Whether the thread may choose `op` as its next op; `next` is its choice so far, or null.
  bool may_be_next(OpRecord& op, const OpRecord* next, const OpsInARow& row) const;
  /// Called before and after the function of an op that is checked.
  void begin_check(OpRecord& op);
  void end_check(OpRecord& op, std::exception_ptr& error);
  /// Runs the op's function, and returns what it throws.
  std::exception_ptr invoke(OpRecord& op, const FailurePtr& poison);
  /// Counts one part of an async op as done. Returns whether it was the last.
  static bool count_down(AsyncBody& body);
  /// Begins a section of the op's lane, and makes the lane wait for other lanes. On an error the op is not issued.
  std::exception_ptr begin_issue(OpRecord& op, OpRecord*& keeper) noexcept;
  Mark leave_point(OpRecord& op);
  /// Updates poison, version and marks of one variable, to which the op still has access.
  void settle_access(OpRecord& op, Dep::Access& access, const Ending& ending, const FailurePtr& failure);
  void settle_marks(OpRecord& op, Dep::Access& access, const Ending& ending);
  /// The failure of an op that is marked as lost.
  FailurePtr take_lost(OpRecord& op);

  Core& core_;
  const bool pool_for_each_lane_;
  const std::exception_ptr dropped_ = dropped_error();
  const std::exception_ptr called_off_ = called_off_error();
  /// For each op marked as lost, the first point it awaited that failed. No entry if there was no memory for one.
  std::unordered_map<const OpRecord*, FailurePtr> lost_ WINDROW_GUARDED_BY(point_mutex);

 public:
  std::unique_ptr<RunningPolicy> policy;  ///< last: its threads use all of the above
};

}  // namespace windrow
