// The engine's state, and the way of an op through it: submit -> release -> dispatch -> run -> finish.
//
// Start here. core.cc (front), wait.cc and run.cc (back) implement it; engine.cc is the public interface on top.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>

#include "failure.h"
#include "lanes.h"
#include "op.h"
#include "running.h"
#include "running_policy.h"
#include "wait_graph.h"
#include "windrow/engine/mutex.h"

namespace windrow {

/// Ready ops on their way to a policy, linked through the ops themselves.
class ReadyList {
 public:
  void push(Dep::Op& op);
  OpRecord* pop();

 private:
  Dep::Op* first_ = nullptr;
  Dep::Op** end_ = &first_;
};

class Core {
 public:
  explicit Core(EngineOptions options);
  /// After shutdown.
  ~Core();

  // ---- front (core.cc): records are made, checked and entered ----
  Var new_var(OpName name);
  OpInfo info(const PushOptions& push);
  /// The accesses as join wants them. Throws MisuseError for an empty or foreign variable.
  std::vector<Dep::Access> canonical(AccessList accesses, const OpInfo& info) const;
  /// Enters the op and takes it over. Throws MisuseError if the engine is shut down or a variable retired, Error if no
  /// thread can be started; the op then is still the caller's, so that what it captured ends outside the engine.
  void submit(OpPtr& op);
  void retire(Var var, OpFunction last, const PushOptions& push);
  void heal(Var var, const PushOptions& push);
  std::uint64_t version(Var var, const OpInfo& info) const;
  LaneId add_lane(std::shared_ptr<Lane> lane);
  LaneId add_lane(HostLane lane);
  void shutdown();
  /// Shuts down, and tells the log of failures nobody was told of. False if ops may still run.
  bool end() noexcept;
  EngineStats stats() const;
  const RunningPolicy& policy() const { return *policy_; }
  Running* frame_of_mine() const;

  // ---- waiting (wait.cc) ----
  bool wait(AccessList accesses, Deadline deadline, std::source_location from);
  bool wait_all(Deadline deadline);

  // ---- back (run.cc): records run and finish ----
  /// `crew` is null only for what runs after shutdown.
  void run(OpRecord& op, Crew* crew);
  /// The OnComplete of an async op was called, or dropped.
  void complete(OpRecord& op, std::exception_ptr outcome);

  const EngineOptions options;
  /// Distinguishes this engine from all others of the process, also from those gone.
  const std::uint32_t number;

 private:
  enum class Life { running, draining, stopped };
  enum class Outcome { ran, failed, skipped };

  // front
  VarState& state_of(Var var, const OpInfo& info) const;
  LaneState& lane(LaneId id);
  /// Counts the op as pending and joins it to its queues.
  void enter(OpPtr& op);
  [[noreturn]] void refuse(const OpInfo& op, std::span<Dep::Access> accesses);
  void drain();
  void free(VarState& var);

  // waiting
  class Waits;
  bool wait_long(Waiter& waiter, WaitGraph::Place place, Deadline deadline);
  bool wait_for_points(Waiter& waiter, Deadline deadline);
  void withdraw(VarState& var, OpId id);
  bool wait_until_idle(Deadline deadline);
  bool wait_until_lanes_reached(Deadline deadline, std::vector<FailurePtr>& failures);
  static bool wait_until_reached(Point point, Deadline deadline, std::exception_ptr& error);

  // back
  /// The op's accesses are granted: it waits for points on the host where it must, else goes on.
  void release(OpRecord& op, ReadyList& ready);
  void release_all(ReadyList& ready);
  bool points_reached(OpRecord& op);
  FailurePtr lost(const Mark& mark, const std::exception_ptr& error);
  void point_reached(OpRecord& op, const Mark& mark, AccessKind kind, std::exception_ptr error);
  void dispatch(OpRecord& op);
  void end_wait(OpRecord& op, ReadyList& ready);
  void issue_waits(OpRecord& op);
  void invoke(OpRecord& op);
  /// One part of an async op is done; true if it was the last.
  bool count_down(OpRecord& op, AsyncBody& body);
  std::optional<Mark> leave_point(OpRecord& op);
  void finish(OpRecord& op, Outcome outcome, const std::optional<Mark>& mark);
  /// What finishing does to one variable; its lock bit is held.
  void settle_access(OpRecord& op, Dep::Access& access, Outcome outcome, const FailurePtr& failure,
                     const std::optional<Mark>& mark);
  std::vector<FailurePtr> poisons(OpRecord& op) const;
  void one_less_pending();

  /// Held by threads that are not the engine's while they finish an op, so that shutdown waits for them.
  class Visit;
  /// Spans a push; with a serial policy the op runs at its end.
  class Push;

  FailureLog failures_{number};
  std::atomic<OpId> last_id_{0};
  std::atomic<OpId> last_wait_id_{OpRecord::first_wait_id};
  std::atomic<std::uint64_t> pending_{0};
  std::atomic<int> visitors_{0};
  std::atomic<std::uint64_t> failed_{0}, skipped_{0}, waits_{0}, waits_in_ops_{0};
  std::atomic<bool> has_ordered_{false};
  std::atomic<Life> life_{Life::running};

  Mutex idle_mutex_;
  CondVar idle_;  // pending_ went to zero

  Mutex shutdown_mutex_;  // one thread shuts down, others wait for it

  mutable Mutex table_mutex_;
  std::deque<VarState> vars_ WINDROW_GUARDED_BY(table_mutex_);
  std::vector<VarState*> free_vars_ WINDROW_GUARDED_BY(table_mutex_);
  std::deque<LaneState> lanes_ WINDROW_GUARDED_BY(table_mutex_);

  Mutex point_mutex_;  // guards OpRecord::lane_failure while points are awaited

  LaneState* host_ = nullptr;  // never changes

  std::unique_ptr<RunningPolicy> policy_;  // last: its threads use all of the above
};

}  // namespace windrow
