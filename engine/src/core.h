// The engine's state, and the way of an op through it: submit -> release -> dispatch -> run -> finish.
//
// Start here. core.cc (front), wait.cc and run.cc (back) implement it; engine.cc is the public interface on top.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>

#include "failure.h"
#include "lanes.h"
#include "op.h"
#include "op_sites.h"
#include "ports.h"
#include "record_pool.h"
#include "running.h"
#include "running_policy.h"
#include "trace_graph.h"
#include "trace_recorder.h"
#include "wait_graph.h"
#include "watchdog.h"
#include "windrow/engine/mutex.h"

namespace windrow {

/// Ready ops on their way to a policy, linked through the ops themselves.
class ReadyList {
 public:
  void push(Dep::Op& op) {
    op.next_ready = nullptr;
    *end_ = &op;
    end_ = &op.next_ready;
  }
  OpRecord* pop() {
    Dep::Op* op = first_;
    if (op == nullptr) return nullptr;
    first_ = op->next_ready;
    if (first_ == nullptr) end_ = &first_;
    return static_cast<OpRecord*>(op);
  }

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
  void push(OpFunction&& function, AccessList accesses, const PushOptions& how, bool retires = false);
  void push_async(AsyncFunction&& function, AccessList accesses, const PushOptions& how);
  std::shared_ptr<DeclaredState> declare(OpFunction&& function, AccessList accesses, const PushOptions& how);
  void push(const std::shared_ptr<DeclaredState>& declared, std::source_location pushed_at);
  void retire(Var var, OpFunction&& last, PushOptions how);
  void heal(Var var, const PushOptions& how);
  std::uint64_t version(Var var, const PushOptions& how);
  MisuseError without_function(const PushOptions& how);
  LaneId add_lane(std::shared_ptr<Lane> lane);
  LaneId add_lane(HostLane lane);
  void shutdown();
  /// Shuts down, and tells the log of failures nobody was told of. False if ops may still run.
  bool end() noexcept;
  EngineStats stats() const;
  /// The ops and waits that have not finished. Nobody pushes meanwhile.
  std::vector<PendingOp> pending_ops();
  const RunningPolicy& policy() const { return *policy_; }
  Running* frame_of_mine() const;

  // ---- waiting (wait.cc) ----
  bool wait(AccessList accesses, Deadline deadline, std::source_location from);
  bool wait_all(Deadline deadline);

  // ---- seeing (seeing.cc): what people are told of what the engine does ----
  void start_trace(const TraceOptions& options);
  void stop_trace();
  TraceRecorder& trace() { return trace_; }
  /// What the trace holds now.
  TraceGraph traced();
  /// Throws Error, naming the path.
  void save_trace(const std::string& path);
  /// An op that runs on this thread has waited.
  void record_wait_inside(OpRecord& op, Ticks begun);
  /// Throws MisuseError inside a push.
  std::string describe_pending();
  Watchdog::Progress progress() const;

  // ---- back (run.cc): records run and finish ----
  /// `slots` is null only for what runs after shutdown.
  void run(OpRecord& op, Slots* slots);
  /// The OnComplete of an async op was called, or dropped.
  void complete(OpRecord& op, std::exception_ptr outcome);

  const EngineOptions options;
  /// Distinguishes this engine from all others of the process, also from those gone.
  const std::uint32_t number;

 private:
  enum class Life { running, draining, stopped };
  /// How an op has ended.
  struct Ending {
    Outcome outcome;
    FailurePtr poison = nullptr;         ///< what kept it from running, or would have
    std::exception_ptr error = nullptr;  ///< of a failed one
    std::optional<Mark> mark = std::nullopt;
    Ticks begun = 0;  ///< where the op is traced
    TraceRecord::Kind kind = TraceRecord::Kind::op;
  };

  // front
  const OpInfo& info(Port& port, const PushOptions& how);
  LaneState& lane(LaneId id);
  /// Throws MisuseError for an empty or foreign variable.
  void check(AccessList accesses, const OpInfo& about) const;
  void check(Var var, const OpInfo& about) const;
  /// As Dep::place wants them; checks each.
  auto access_of(AccessList accesses, const OpInfo& about) const;
  /// A span in which this thread may make records and enter them.
  class Entry;
  /// This thread is not known to be the only one that enters records: sees to it that all know.
  void join_others(Port& port);
  /// Makes a record with the accesses that `access_of` gives and the body that `set_body` sets, and enters it. Throws
  /// MisuseError if the engine is shut down or a variable retired, Error if no thread can be started.
  template <class AccessOf, class SetBody>
  void submit(Port& port, const OpInfo& about, int priority, std::size_t accesses, AccessOf&& access_of,
              std::size_t body_bytes, SetBody&& set_body, bool retires);
  void start(LaneState& lane);
  /// Takes back the records, which were entered nowhere, and throws.
  [[noreturn]] void refuse(const OpInfo& about, std::span<OpRecord* const> ops, const Entry& entry);
  /// A thread from outside that has pushed too far ahead waits here.
  void hold_back(Port& port);
  void set_life(Life life);
  void drain();
  void free(VarState& var);

  // waiting
  class Waits;
  bool wait_long(Waiter& waiter, OpKey key, Deadline deadline);
  bool wait_for_points(Waiter& waiter, Deadline deadline);
  bool wait_until_idle(Deadline deadline);
  bool wait_until_lanes_reached(Deadline deadline, std::vector<FailurePtr>& failures);
  static bool wait_until_reached(Point point, Deadline deadline, std::exception_ptr& error);

  // back
  /// The op's accesses are granted: it waits for points on the host where it must, else goes on.
  void release(OpRecord& op);
  void release(OpRecord& op, ReadyList& ready);
  void release_all(ReadyList& ready);
  bool points_reached(OpRecord& op);
  /// One of the points the op waits for is reached.
  static bool was_last_point(OpRecord& op);
  FailurePtr lost(const Mark& mark, const std::exception_ptr& error);
  void point_reached(OpRecord& op, const Mark& mark, AccessKind kind, std::exception_ptr error);
  void dispatch(OpRecord& op);
  void end_wait(OpRecord& op, ReadyList& ready);
  void issue_waits(OpRecord& op);
  /// On whose slots an op begins, and when if it is traced.
  struct Begin {
    Slots* slots;
    Ticks begun;
  };
  void run_async(OpRecord& op, Begin begin, FailurePtr poison);
  /// Runs the op's function, and returns what it throws.
  std::exception_ptr invoke(OpRecord& op, const FailurePtr& poison);
  /// One part of an async op is done; true if it was the last.
  static bool count_down(AsyncBody& body);
  void finish_async(OpRecord& op, Slots* slots);
  Mark leave_point(OpRecord& op);
  /// Takes the op out of its variables' chains. It may be gone then.
  template <class Settle>
  void leave(OpRecord& op, ReadyList& ready, Settle&& settle);
  void finish(OpRecord& op, const Ending& ending);
  /// What finishing does to one variable, to which the op still has access.
  void settle_access(OpRecord& op, Dep::Access& access, const Ending& ending, const FailurePtr& failure);
  void settle_marks(OpRecord& op, Dep::Access& access, const Ending& ending);
  std::vector<FailurePtr> poisons(OpRecord& op);
  FailurePtr first_poison(OpRecord& op);
  /// What run() does for a function on a host lane that nothing keeps from running; returns what the function throws.
  std::exception_ptr run_plain(OpRecord& op, Slots* slots);
  void finish_plain(OpRecord& op, Slots* slots);
  /// While the engine is traced: when an op begins on this thread, else 0.
  Ticks begin_traced(const Slots* slots);
  /// As run_plain and finish_plain.
  void run_traced(OpRecord& op, Slots* slots, Ticks begun);
  void record(OpRecord& op, const Ending& ending);
  /// Of an async op, that its function has returned.
  void record_call(OpRecord& op, Ticks begun);
  /// Records how many ops are pending, if that was not done just now.
  void sample(Port& port, Ticks now);
  void save_trace_for_environment() noexcept;
  /// A worker has nothing more to do.
  void rest_traced();
  void one_less_pending(Port& port);
  void tell_if_idle();

  /// Held by threads that are not the engine's while they finish an op, so that shutdown waits for them.
  class Visit;
  /// Spans a push; with a serial policy the op runs at its end.
  class Push;

  FailureLog failures_{number};
  OpSites sites_;
  RecordPool records_;
  mutable Ports ports_{number};
  /// The only port that has entered anything so far; null before, and once there are several.
  std::atomic<Port*> lone_{nullptr};
  std::atomic<bool> several_{false};
  std::atomic<int> visitors_{0};
  std::atomic<std::uint64_t> failed_{0}, skipped_{0}, waits_{0}, waits_in_ops_{0}, last_wait_id_{0};
  std::atomic<std::uint16_t> threads_numbered_{0};
  std::atomic<bool> has_ordered_{false};
  /// Why ops may not take the plain way, besides what they are themselves.
  enum Detour : unsigned { by_ordered_lanes = 1, by_trace = 2 };
  std::atomic<unsigned> detours_{0};
  std::atomic<Life> life_{Life::running};

  TraceRecorder trace_;
  const std::string trace_path_;  // where the environment wants it; else empty

  Mutex idle_mutex_;
  CondVar idle_;  // nothing may be pending
  /// Threads that wait for it. Changed and read by read-modify-write only: of a thread that comes to wait and one that
  /// has finished an op, the later one sees what the earlier one did.
  std::atomic<int> idle_waiters_{0};

  Mutex shutdown_mutex_;  // one thread shuts down, others wait for it

  Mutex table_mutex_;
  std::deque<VarState> vars_ WINDROW_GUARDED_BY(table_mutex_);
  std::vector<VarState*> free_vars_ WINDROW_GUARDED_BY(table_mutex_);
  std::deque<LaneState> lanes_ WINDROW_GUARDED_BY(table_mutex_);

  Mutex point_mutex_;
  /// Of ops marked as lost, the first failed point among those they waited for.
  std::unordered_map<const OpRecord*, FailurePtr> lost_ WINDROW_GUARDED_BY(point_mutex_);

  LaneState* host_ = nullptr;  // never changes

  std::unique_ptr<Watchdog> watchdog_;     // runs from the first push to the end of shutdown; null if not wanted
  std::unique_ptr<RunningPolicy> policy_;  // last: its threads use all of the above
};

/// Not started.
std::unique_ptr<Watchdog> make_watchdog(Core& core);

}  // namespace windrow
