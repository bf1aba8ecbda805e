// The engine's state, and the path of an op through it: submit -> release -> dispatch -> run -> finish.
//
// Start here. push.cc, core.cc, lanes.cc and back_pressure.cc implement the front; release.cc, run.cc, async.cc and
// limits.cc the back; graph/launch.cc launches of graphs, which use both; wait.cc and ahead.h waits; seeing.cc traces
// and reports; engine.cc the public interface on top.
#pragma once

#include <atomic>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <unordered_map>

#include "core/ending.h"
#include "core/failure.h"
#include "core/held_back.h"
#include "core/op.h"
#include "core/op_sites.h"
#include "core/pending_bytes.h"
#include "core/ports.h"
#include "core/ready_list.h"
#include "core/record_pool.h"
#include "core/running.h"
#include "diagnosis/access_check.h"
#include "diagnosis/watchdog.h"
#include "graph/capture.h"
#include "lane/lanes.h"
#include "policy/running_policy.h"
#include "process/fork.h"
#include "trace/graph.h"
#include "trace/recorder.h"
#include "wait/wait_graph.h"

namespace windrow {

/// The interval at which a wait during shutdown, or of a serial engine for a device, logs that it still waits.
inline constexpr std::chrono::seconds shutdown_notice{10};

class Core {
 public:
  explicit Core(EngineOptions options);
  /// The engine must have been shut down.
  ~Core();

  // ---- front (push.cc, core.cc): makes, checks and enters records ----
  Var new_var(OpName name);
  template <class Body>
  void push(OpFunction&& function, AccessList accesses, const PushOptions& how);
  void push_async(AsyncFunction&& function, AccessList accesses, const PushOptions& how);
  std::shared_ptr<DeclaredState> declare(OpFunction&& function, AccessList accesses, const PushOptions& how);
  void push(const std::shared_ptr<DeclaredState>& op);
  using DeclaredOps = std::list<std::shared_ptr<CapturedOp>>;
  /// The ops that have no handle any more, for the caller to destroy; none while something is pending that may call them.
  DeclaredOps take_dropped() noexcept;
  void retire(Var var, OpFunction&& last, PushOptions how);
  void heal(Var var, const PushOptions& how);
  Ports& ports() { return ports_; }
  std::uint64_t version(Var var, const PushOptions& how);
  std::uint64_t pushed_version(Var var, const PushOptions& how);
  void watch(Var var, std::span<std::byte> bytes, const PushOptions& how);
  /// Returns false if the variable was retired, unless the call comes from an op that has access to it.
  bool watch_unless_retired(Var var, std::span<std::byte> bytes);
  MisuseError without_function(const PushOptions& how);
  /// Wraps the function in the rare options of the push (adorned.h). Blocks while too many bytes are pending.
  template <class... Args>
  Function<void(Args...)> adorn(Function<void(Args...)>&& function, const PushOptions& how);
  LaneId add_lane(std::shared_ptr<Lane> lane, const LaneOptions& how);
  LaneId add_lane(HostLane lane);
  LaneState& lane(LaneId id);
  void remove_lane(LaneId id);
  void resume(LaneState& lane) noexcept;    ///< called when the lane has room for ops that wait there
  void end_kept(LaneState& lane) noexcept;  ///< called when the lane has reached points of what it keeps
  void shutdown();
  bool shutdown_for(std::chrono::nanoseconds patience, const std::function<void(std::string)>& abort);
  /// Whether ops should stop, since shutdown_for() has waited too long.
  bool gives_up() const { return (detours_ & by_end) != 0; }
  /// Shuts down, and logs the failures that no wait reported. Returns false if ops may still run, or a fork lost them.
  bool end() noexcept;
  void finish_at_exit() noexcept;  ///< waits for as many ops as are pending, as long as they make progress
  void rest_at_exit() noexcept;    ///< the same; then no op begins any more, and no other thread runs one
  void refuse_torn() const { fork_gate_.refuse_torn(); }  ///< MisuseError in a fork whose copy of the engine is torn
  bool torn() const { return fork_gate_.torn(); }
  EngineStats stats() const;
  std::uint64_t failures() const { return failed_ + skipped_ + cancelled_; }
  /// The ops and waits that have not finished. No thread can push during the call.
  std::vector<PendingOp> pending_ops();
  const RunningPolicy& policy() const { return *policy_; }
  Running* frame_of_mine() const;

  // ---- graphs (graph/launch.cc) ----
  std::shared_ptr<GraphState> capture(const std::function<void()>& body, OpName name);
  void append(GraphState& graph, const std::function<void()>& body);
  void launch(GraphState& graph, std::source_location from);
  static Dep::Access access(const Var& var, AccessKind kind) { return {*var.state_, var.generation_, kind}; }
  /// Throws MisuseError if one of the op's variables is retired.
  void refuse_stale(const CapturedOp& op);
  /// Invalidates all handles of the variable, and returns a new one.
  Var take_over(const Var& var);
  /// Called when a graph ends: retires a variable of the graph, or one from outside unless a launch has retired it.
  void retire_own(const Var& var) noexcept;
  void retire_captured(CapturedOp& op) noexcept;
  void keep_captures(CapturedOp& op) noexcept;  ///< called when an op of an ordered lane ends with its graph
  const std::shared_ptr<CoreLink>& link() const { return link_; }

  // ---- waiting (wait.cc) ----
  bool wait(AccessList accesses, Deadline deadline, std::source_location from);
  bool wait_all(Deadline deadline);

  // ---- seeing (seeing.cc): traces and reports ----
  void start_trace(const TraceOptions& options);
  void stop_trace();
  TraceRecorder& trace() { return trace_; }
  TraceGraph traced();                       ///< the contents of the trace so far
  void save_trace(const std::string& path);  ///< throws an Error that names the path
  /// Records that an op, which runs on this thread, has waited since `begun`.
  void record_wait_inside(OpRecord& op, Ticks begun);
  /// Throws MisuseError inside a push.
  std::string describe_pending();
  std::string describe_lanes();
  Watchdog::Progress progress();

  // ---- back (run.cc): runs and finishes ops ----
  /// Runs the op, then successors that it makes ready, for as long as the policy lets this thread choose its next op.
  /// `slots` is null only for an op that runs after shutdown.
  void run(OpRecord& op, Slots* slots) noexcept;
  /// Called when the OnComplete of an async op is called or dropped.
  void complete(OpRecord& op, std::exception_ptr outcome) noexcept;
  /// The outcome of an op whose OnComplete was dropped: an exception of its own or, without memory, `dropped_`.
  std::exception_ptr dropped() const noexcept;
  /// An op that awaits a point, and the op that left the point.
  struct PointAwaited {
    OpRecord& op;
    IfFailed if_failed;
    const OpInfo& left_by;
  };
  void point_reached(const PointAwaited& awaited, const std::exception_ptr& error) noexcept;

  const EngineOptions options;
  /// Unique among all engines that the process ever had.
  const std::uint32_t number;

 private:
  friend class Forks;
  friend class EngineUse;
  enum class Life { running, draining, stopped };
  Var make_var(OpName name);
  /// For an engine that is draining or stopped: throws MisuseError if it accepts no ops from this thread.
  void check_life(Life life, const OpInfo& about) const;
  /// The upper bits of the ids of the ops that this thread pushes.
  OpId thread_number(Port& port) { return port.first_id != Port::unnumbered ? port.first_id : number_thread(port); }
  OpId number_thread(Port& port);
  [[gnu::always_inline]] const OpInfo& info(Port& port, const PushOptions& how) {
    const OpInfo* known = OpSites::known(port, how);
    return known != nullptr ? *known : describe(port, how);
  }
  const OpInfo& describe(Port& port, const PushOptions& how);
  LaneState& lane_at(std::size_t index);
  std::size_t lanes();
  /// Throws MisuseError for an empty or foreign variable.
  void check(Var var, const OpInfo& about) const {
    if (!var || var.state_->owner != number) [[unlikely]]
      refuse(var, about);
  }
  [[noreturn]] void refuse(Var var, const OpInfo& about) const;
  /// The handle's variable. Throws MisuseError for an empty, foreign or retired one.
  VarState& alive(Var var, const PushOptions& how);
  // The parts of a push: accesses in the form that Dep::place takes, the op's properties, and a body.
  struct Listed;
  struct Canonical;
  struct Single;
  struct Entering {
    const OpInfo& about;
    int priority;
    bool retires = false;
  };
  /// The section in which a thread may make and enter records; entry.h.
  class Entry;
  /// Makes this the lone thread that enters records if there is none; else switches all threads to lock bits.
  void join_others(Port& port);
  /// Captures or pushes the op. Throws MisuseError after shutdown or for a wrong variable, Error if no thread starts.
  template <class Body>
  void push_listed(Port& port, const Entering& op, AccessList accesses, const Body& body);
  template <class Accesses, class Body>
  void push_op(Port& port, const Entering& op, const Accesses& accesses, const Body& body);
  template <class Accesses, class Body>
  void divert(Port& port, const Entering& op, const Accesses& accesses, const Body& body);
  template <class Accesses>
  static std::shared_ptr<CapturedOp> without_body(const Entering& op, const Accesses& accesses);
  template <class Accesses, class Body>
  void submit(Port& port, const Entering& op, const Accesses& accesses, const Body& body);
  /// Makes the op's record and enters it. Returns the record if the op is ready, else null.
  template <class Accesses, class Body>
  OpRecord* enter(Port& port, const Entering& op, const Accesses& accesses, const Body& body);
  void start(LaneState& lane);
  /// Frees the records, none of which was entered, and throws.
  [[noreturn]] void refuse(const OpInfo& about, std::span<OpRecord* const> ops, const Entry& entry);
  [[noreturn]] void refuse(const OpInfo& about, OpRecord* op, const Entry& entry);
  class Patience;
  /// Whether `is` holds for an op that was pushed and has not finished. Needs no memory.
  bool any_pending(const std::function<bool(const OpRecord&)>& is);
  /// Whether an op runs, is ready, or awaits its OnComplete or a lane's point. Needs no memory.
  bool any_under_way();
  /// Back-pressure: blocks a thread that has pushed too far ahead, unless it runs an op.
  void hold_back(Port& port);
  /// Waits for room as EngineOptions::max_pending_bytes specifies.
  PendingBytes::Share take_bytes(std::uint64_t bytes);
  void set_life(Life life);
  void refuse_inside(const char* call) const;
  bool shut_down(Deadline deadline);
  bool shut_down_in_time(std::chrono::nanoseconds patience);
  bool drain(Deadline deadline);
  /// Called where the engine is leaked: from now on no function of the program is called but those that run already.
  void leave_behind() noexcept;
  void free(VarState& var);

  class Waits;
  class Ahead;
  bool wait_for_points(const Waiter& waiter, Deadline deadline, std::vector<FailurePtr>& failures);
  bool wait_until_idle(Deadline deadline);
  bool wait_until_lanes_reached(Deadline deadline, std::vector<FailurePtr>& failures);
  static bool wait_until_reached(Point point, Deadline deadline, std::exception_ptr& error);
  /// Waits until the point is reached, without a limit. Needs no memory.
  static void reach(Point point) noexcept;

  void join_gates(GraphLaunch& launch, const OpInfo& about, const Entry& entry, ReadyList& ready);
  /// From this call on the launch's ops count as pushed.
  void number_nodes(GraphLaunch& launch, Port& port);
  void unlist(GraphLaunch& launch);
  /// Called when the gate's place at its variable is granted.
  void open_gate(OpRecord& gate, ReadyList& ready);
  /// Counts down the events that the gate awaits; it leaves after the last.
  void leave_gate(GraphLaunch& launch, std::uint32_t index, ReadyList& ready);
  void begin_roots(GraphLaunch& launch);
  /// Removes the op from its launch, and puts the successors that become ready into `ready`.
  void leave_node(OpRecord& op, ReadyList& ready);
  void end_part(GraphLaunch& launch);
  /// Makes launches that ended on this thread reusable. Destroys graphs without an owner, and their captures.
  void end_launches(Port& port, Slots* slots);
  void append_nodes(std::vector<PendingOp>& ops);

  // back: moves granted ops on and finishes ops that have run, even when memory has run out
  /// Called when the op's accesses are granted: gives the op to the policy, or keeps it until it may run.
  void release(OpRecord& op) noexcept;
  void release(OpRecord& op, ReadyList& ready) noexcept;
  void release_all(ReadyList& ready) noexcept;
  /// Releases what an op on these slots made ready. Returns what this thread runs next: `next`, another one, or null.
  OpRecord* go_on(OpRecord* next, ReadyList& others, Slots* slots) noexcept;
  /// Whether a thread that ran an op on these slots may choose this ready one as its next op.
  static bool may_go_on(const OpRecord& op, const Slots* slots) {
    return slots != nullptr && op.priority == 0 && slots->goes_on_with(op.info().lane);
  }
  /// True if a granted op may run without further checks. False only means that the checks are needed.
  [[gnu::always_inline]] bool is_plainly_ready(OpRecord& op) const {
    return !op.after_end && !op.commutes() && !op.is_wait() && (!has_ordered_ || is_apart_from_lanes(op));
  }
  /// Whether to give the op, whose accesses are granted, to the policy now.
  bool may_run(OpRecord& op, ReadyList& ready) noexcept;
  bool points_reached(OpRecord& op);
  FailurePtr lost(const OpInfo& of, const std::exception_ptr& error) noexcept;
  /// Counts `points` of the awaited points as reached. Returns whether these were the last.
  static bool were_last_points(OpRecord& op, std::int32_t points);
  /// Whether the op may go to the policy. If not, its lane keeps it, or, after the engine's end, it has run already.
  bool admit(OpRecord& op);
  void end_wait(OpRecord& op, ReadyList& ready) noexcept;
  void end_fence(OpRecord& op, ReadyList& ready) noexcept;
  /// Makes a fence for the variable. Throws std::bad_alloc.
  OpRecord& make_fence(Port& port, Dep::Var& var);

  // turns (turns.cc): ops that commute on a variable run one at a time
  /// Takes the op's turns at all variables where it commutes, or takes none and keeps the op until a retry may succeed.
  /// Ops that were kept, and should retry now, go to `others`.
  static bool take_turns(OpRecord& op, ReadyList& others) noexcept;
  static void end_turns(OpRecord& op, ReadyList& others) noexcept;
  /// Begins a section of the op's lane, which waits for other lanes there. On an error the op is not issued.
  std::exception_ptr begin_issue(OpRecord& op, OpRecord*& keeper) noexcept;
  OpRecord& make_keeper(Port& port);
  /// Keeps what a device may use in an op of the engine's own, which destroys it when the lane's point is reached.
  void keep(OpRecord& keeper, Captures&& captures, LaneState& lane, Point point, Port& port) noexcept;
  // Each of these runs an op, and returns the next one of this thread, or null.
  OpRecord* run_one(OpRecord& op, Row& row);
  /// Runs an op that cannot take the fast path; run_with_care() is the slowest path, which handles every op.
  OpRecord* run_detoured(OpRecord& op, Row& row);
  /// The fast path: an op with a function, on a host lane, that nothing keeps from running.
  OpRecord* run_function(OpRecord& op, Row& row);
  /// The fast path for an op of a launch, and then for its successors.
  OpRecord* run_nodes(OpRecord& first, Row& row);
  /// Whether other ready ops get a turn before the thread continues with a successor.
  bool gives_way(const Row& row) const;
  /// Whether the thread may choose `op` as its next op; `next` is its choice so far, or null.
  bool may_be_next(OpRecord& op, const OpRecord* next, const Row& row) const;
  OpRecord* end_plain(OpRecord* next, ReadyList& others, Row& row);
  OpRecord* run_with_care(OpRecord& op, const Begin& begin);
  void invoke_node(OpRecord& op, const FailurePtr& poison);
  /// To be called before and after the function of an op that is checked.
  void begin_check(OpRecord& op);
  void end_check(OpRecord& op, std::exception_ptr& error);
  OpRecord* end_captures(OpRecord& first, Slots* slots) noexcept;
  OpRecord* run_async(OpRecord& op, const Begin& begin, FailurePtr poison);
  /// Runs the op's function, and returns what it throws.
  std::exception_ptr invoke(OpRecord& op, const FailurePtr& poison);
  /// Counts one part of an async op as done. Returns whether it was the last.
  static bool count_down(AsyncBody& body);
  OpRecord* finish_async(OpRecord& op, Slots* slots);
  Mark leave_point(OpRecord& op);
  /// Takes the op out of its variables' chains. Its record may be freed by then.
  template <class Settle>
  void leave(OpRecord& op, ReadyList& ready, Settle&& settle);
  OpRecord* finish(OpRecord& op, const Ending& ending) noexcept;
  /// Finishes an op whose function has thrown. To be called from the catch clause.
  OpRecord* fail(OpRecord& op, const Row& row);
  /// Updates poison, version and marks of one variable, to which the op still has access.
  void settle_access(OpRecord& op, Dep::Access& access, const Ending& ending, const FailurePtr& failure);
  void settle_marks(OpRecord& op, Dep::Access& access, const Ending& ending);
  FailurePtr first_poison(OpRecord& op);
  /// The failure of an op that is marked as lost.
  FailurePtr take_lost(OpRecord& op);
  /// While the engine is traced, the time at which an op begins on this thread; else 0.
  Ticks begin_traced(const Slots* slots);
  /// Traces an op that began at `row.begun` and ran without error. It must not have left its variables yet.
  void record_plain(OpRecord& op, const Row& row);
  void record(OpRecord& op, const Ending& ending, const FailurePtr& failure);
  /// Traces that the function of an async op has returned.
  void record_call(OpRecord& op, Ticks begun);
  /// Traces the number of pending ops, unless that was done a moment ago.
  void sample(Port& port, Ticks now);
  void save_trace_for_environment() noexcept;
  /// Called when a worker runs out of work while the engine is traced.
  void rest_traced();
  void one_less_pending(Port& port);
  void tell_if_idle();

  class Visit;  ///< spans the end of an op on a thread that is not the engine's; entry.h
  class Push;   ///< spans a push; entry.h

  FailureLog failures_{number};
  const std::exception_ptr dropped_ = dropped_error();
  PendingBytes pending_bytes_{options.max_pending_bytes};
  HeldBack held_back_;           // by max_pending_ops
  HeldBack held_back_by_bytes_;  // by max_pending_bytes
  OpSites sites_;
  RecordPool records_;
  mutable Ports ports_{number, options.denormals};
  /// The first port that entered a record; null before. It is the only one until `several_` is set.
  std::atomic<Port*> lone_{nullptr};
  std::atomic<bool> several_{false};
  std::atomic<int> visitors_{0};
  std::atomic<std::uint64_t> failed_{0}, skipped_{0}, cancelled_{0}, waits_{0}, waits_in_ops_{0}, last_wait_id_{0};
  std::atomic<std::uint32_t> threads_numbered_{0};
  std::atomic<bool> has_ordered_{false};
  /// Reasons for which ops may not take the fast path; by_ordered_lanes holds unless is_apart_from_lanes().
  enum Detour : unsigned { by_ordered_lanes = 1, by_trace = 2, by_check = 4, by_end = 8, by_leak = 16, by_exit = 32 };
  std::atomic<unsigned> detours_{0};
  std::atomic<Life> life_{Life::running};

  TraceRecorder trace_;
  std::string trace_path_;  // from the environment, or empty. Changes only in a forked child

  Mutex idle_mutex_;
  CondVar idle_;  // notified when possibly nothing is pending
  /// The number of threads that wait for `idle_`. Accessed by read-modify-write only: of a thread that begins to wait
  /// and one that has finished an op, the later one sees what the earlier one did.
  std::atomic<int> idle_waiters_{0};

  Mutex launches_mutex_;
  GraphLaunch* launches_ WINDROW_GUARDED_BY(launches_mutex_) = nullptr;       // under way
  const std::shared_ptr<CoreLink> link_ = std::make_shared<CoreLink>(*this);  // for what may outlive the engine

  Mutex shutdown_mutex_;           // held by the thread that shuts down; others wait for it
  std::atomic<bool> left_{false};  // shutdown_for() has left ops behind
  const std::exception_ptr called_off_ = called_off_error();
  ForkGate fork_gate_;

  Mutex table_mutex_;
  std::deque<VarState> vars_ WINDROW_GUARDED_BY(table_mutex_);
  std::vector<VarState*> free_vars_ WINDROW_GUARDED_BY(table_mutex_);
  std::deque<LaneState> lanes_ WINDROW_GUARDED_BY(table_mutex_);
  DeclaredOps declared_ WINDROW_GUARDED_BY(table_mutex_);

  Mutex point_mutex_;
  /// For each op marked as lost, the first point it awaited that failed. No entry if there was no memory for one.
  std::unordered_map<const OpRecord*, FailurePtr> lost_ WINDROW_GUARDED_BY(point_mutex_);

  const bool callers_run_ = options.policy == Policy::serial;  // ops run on the threads that push
  LaneState* host_ = nullptr;                                  // fixed by the constructor
  OpInfo end_of_graph_{.name = "the end of a graph"};          // fixed by the constructor
  OpInfo fence_{.name = "a fence"};                            // likewise
  OpInfo captures_{.name = "the captures of an op"};           // likewise
  const std::unique_ptr<AccessCheck> access_check_;            // null unless options.check
  std::unique_ptr<Watchdog> watchdog_;     // runs from the first push to the end of shutdown; null if switched off
  std::unique_ptr<RunningPolicy> policy_;  // last: its threads use all of the above
};

}  // namespace windrow
