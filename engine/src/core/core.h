// The engine's state, and the way of an op through it: submit -> release -> dispatch -> run -> finish.
//
// Start here. push.cc, core.cc, lanes.cc and back_pressure.cc implement the front; graph/launch.cc what a graph does
// with both ends; wait.cc and ahead.h the waits; release.cc, run.cc and async.cc the back; seeing.cc what people are
// told; engine.cc the public interface on top.
#pragma once

#include <atomic>
#include <deque>
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
#include "graph/push_plan.h"
#include "lane/lanes.h"
#include "policy/running_policy.h"
#include "process/fork.h"
#include "trace/graph.h"
#include "trace/recorder.h"
#include "wait/wait_graph.h"

namespace windrow {

/// While something waits longer than this to the end of an engine, it says so.
inline constexpr std::chrono::seconds shutdown_notice{10};

class Core {
 public:
  explicit Core(EngineOptions options);
  /// After shutdown.
  ~Core();

  // ---- front (push.cc, core.cc): records are made, checked and entered ----
  Var new_var(OpName name);
  void push(OpFunction&& function, AccessList accesses, const PushOptions& how);
  void push_async(AsyncFunction&& function, AccessList accesses, const PushOptions& how);
  std::shared_ptr<DeclaredState> declare(OpFunction&& function, AccessList accesses, const PushOptions& how);
  void retire(Var var, OpFunction&& last, PushOptions how);
  void heal(Var var, const PushOptions& how);
  void begin_bulk();
  void end_bulk() noexcept;
  std::uint64_t version(Var var, const PushOptions& how);
  void watch(Var var, std::span<std::byte> bytes, const PushOptions& how);
  /// False for a variable that was retired, but inside an op that has access to it.
  bool watch_unless_retired(Var var, std::span<std::byte> bytes);
  MisuseError without_function(const PushOptions& how);
  /// The function with what the options ask for beyond running it; holds this thread back where there are too many
  /// bytes.
  template <class... Args>
  Function<void(Args...)> adorn(Function<void(Args...)>&& function, const PushOptions& how);
  LaneId add_lane(std::shared_ptr<Lane> lane);
  LaneId add_lane(HostLane lane);
  void shutdown();
  /// Shuts down, and tells the log of failures nobody was told of. False if ops may still run, or are lost by a fork.
  bool end() noexcept;
  /// Throws MisuseError in a forked child whose copy of the engine is torn.
  void refuse_torn() const { fork_gate_.refuse_torn(); }
  bool torn() const { return fork_gate_.torn(); }
  EngineStats stats() const;
  /// The ops and waits that have not finished. Nobody pushes meanwhile.
  std::vector<PendingOp> pending_ops();
  const RunningPolicy& policy() const { return *policy_; }
  Running* frame_of_mine() const;

  // ---- graphs (graph/launch.cc) ----
  std::shared_ptr<GraphState> capture(const std::function<void()>& body, OpName name);
  void append(GraphState& graph, const std::function<void()>& body);
  void launch(GraphState& graph, std::source_location from);
  /// False in a capture.
  bool launch(const DeclaredState& op, std::source_location from);
  /// From now on launches push by that, if not null. Returns what they pushed by so far; nobody begins a use of it any
  /// more. The graph's mutex is held.
  PushPlan* replace(std::atomic<PushPlan*>& pushes, PushPlan* by);
  static Dep::Access access(const Var& var, AccessKind kind) { return {*var.state_, var.generation_, kind}; }
  /// Throws MisuseError if one of the op's variables is retired.
  void refuse_stale(const CapturedOp& op);
  /// The only handle of the variable that is of use from now on.
  Var take_over(const Var& var);
  /// At a graph's end: retires its own variable, or one from outside, unless a launch has.
  void retire_own(const Var& var) noexcept;
  void retire_captured(CapturedOp& op) noexcept;
  const std::shared_ptr<CoreLink>& link() const { return link_; }

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
  std::string describe_lanes();
  Watchdog::Progress progress();

  // ---- back (run.cc): records run and finish ----
  /// Runs the op, and what it makes ready as long as the policy lets this thread go on by itself. `slots` is null only
  /// for what runs after shutdown.
  void run(OpRecord& op, Slots* slots) noexcept;
  /// The OnComplete of an async op was called, or dropped.
  void complete(OpRecord& op, std::exception_ptr outcome) noexcept;
  /// The outcome of an op whose OnComplete was dropped; made beforehand, since dropping must not fail.
  const std::exception_ptr& dropped() const { return dropped_; }
  /// An op that awaits a point, and the op that left the point.
  struct PointAwaited {
    OpRecord& op;
    IfFailed if_failed;
    const OpInfo& left_by;
  };
  void point_reached(const PointAwaited& awaited, const std::exception_ptr& error) noexcept;

  const EngineOptions options;
  /// Distinguishes this engine from all others of the process, also from those gone.
  const std::uint32_t number;

 private:
  friend class Forks;
  friend class PushPlan;
  friend class EngineUse;
  enum class Life { running, draining, stopped };
  /// What a thread runs one after the other, each made ready by the one before.
  struct Row {
    Slots* slots;
    bool goes_on;  ///< the policy lets this thread choose what comes next
    Port& port;    ///< of this thread
    OpContext context{};
    Ticks begun = 0;    ///< where the op is traced
    unsigned runs = 1;  ///< so far, with the op that runs
  };

  // front
  Var make_var(OpName name);
  /// Throws MisuseError if the engine, which does not just run, takes no ops of this thread.
  void check_life(Life life, const OpInfo& about) const;
  /// What the numbers of the ops begin with that this thread pushes.
  OpId thread_number(Port& port) { return port.first_id != Port::unnumbered ? port.first_id : number_thread(port); }
  OpId number_thread(Port& port);
  [[gnu::always_inline]] const OpInfo& info(Port& port, const PushOptions& how) {
    const OpInfo* known = OpSites::known(port, how);
    return known != nullptr ? *known : describe(port, how);
  }
  const OpInfo& describe(Port& port, const PushOptions& how);
  LaneState& lane(LaneId id);
  LaneState& lane_at(std::size_t index);
  std::size_t lanes();
  LaneId keep(LaneState& lane);
  /// Throws MisuseError for an empty or foreign variable.
  void check(Var var, const OpInfo& about) const {
    if (!var || var.state_->owner != number) [[unlikely]]
      refuse(var, about);
  }
  [[noreturn]] void refuse(Var var, const OpInfo& about) const;
  /// What is behind the handle; throws MisuseError for an empty, foreign or retired one.
  VarState& alive(Var var, const PushOptions& how);
  // What is pushed: its accesses as Dep::place wants them, and a body.
  struct Listed;
  struct Single;
  struct Entering {
    const OpInfo& about;
    int priority;
    bool retires = false;
  };
  /// A span in which this thread may make records and enter them.
  class Entry;
  /// This thread is not known to be the only one that enters records: sees to it that all know.
  void join_others(Port& port);
  /// Captures or pushes the op. Throws MisuseError if the engine is shut down or a variable empty, foreign or retired,
  /// Error if no thread can be started.
  template <class Body>
  void push_listed(Port& port, const Entering& op, AccessList accesses, const Body& body);
  template <class Accesses, class Body>
  void capture(Port& port, const Entering& op, const Accesses& accesses, const Body& body);
  template <class Accesses>
  static std::shared_ptr<CapturedOp> without_body(const Entering& op, const Accesses& accesses);
  template <class Accesses, class Body>
  void submit(Port& port, const Entering& op, const Accesses& accesses, const Body& body);
  /// Makes its record and enters that. Returns it if it is ready, else null.
  template <class Accesses, class Body>
  OpRecord* enter(Port& port, const Entering& op, const Accesses& accesses, const Body& body);
  void start(LaneState& lane);
  /// Takes back the records, which were entered nowhere, and throws.
  [[noreturn]] void refuse(const OpInfo& about, std::span<OpRecord* const> ops, const Entry& entry);
  [[noreturn]] void refuse(const OpInfo& about, OpRecord* op, const Entry& entry);
  class Patience;
  /// Whether an op runs, is ready, or awaits its OnComplete or a lane's point. Needs no memory.
  bool any_under_way();
  /// A thread from outside that has pushed too far ahead waits here.
  void hold_back(Port& port);
  /// Waits for room, as the contract of EngineOptions::max_pending_bytes says.
  PendingBytes::Share take_bytes(std::uint64_t bytes);
  void set_life(Life life);
  void drain();
  void free(VarState& var);

  // waiting
  class Waits;
  class Ahead;
  bool wait_for_points(const Waiter& waiter, Deadline deadline, std::vector<FailurePtr>& failures);
  bool wait_until_idle(Deadline deadline);
  bool wait_until_lanes_reached(Deadline deadline, std::vector<FailurePtr>& failures);
  static bool wait_until_reached(Point point, Deadline deadline, std::exception_ptr& error);
  /// Waits for the point to the end, and needs no memory.
  static void reach(Point point) noexcept;

  // graphs
  /// False, and nothing is done, if launches go by gates.
  bool launch_by_pushes(Port& port, const std::atomic<PushPlan*>& plan_now, const LaunchSite& site);
  void launch_by_gates(Port& port, GraphState& graph, std::source_location from);
  class Pushing;  ///< of a launch's ops; graph/push.cc
  /// So many ops were pushed: holds the thread back if it is too far ahead.
  void look_after_pushes(Port& port, std::size_t count) {
    if ((port.pushes_to_look -= static_cast<int>(count)) <= 0) hold_back(port);
  }
  void join_gates(GraphLaunch& launch, const OpInfo& about, const Entry& entry, ReadyList& ready);
  /// The launch's ops count as pushed from here on.
  void number_nodes(GraphLaunch& launch, Port& port);
  void unlist(GraphLaunch& launch);
  /// Its place at a variable is granted.
  void open_gate(OpRecord& gate, ReadyList& ready);
  /// One less that the gate waits for before it leaves.
  void leave_gate(GraphLaunch& launch, std::uint32_t index, ReadyList& ready);
  void begin_roots(GraphLaunch& launch);
  /// Takes the op of a launch out of that; its successors that are ready go to `ready`.
  void leave_node(OpRecord& op, ReadyList& ready);
  void end_part(GraphLaunch& launch);
  /// Those that have ended on this thread are free for others, and what nobody keeps any more goes with its captures.
  void end_parts(Port& port, Slots* slots);
  void append_nodes(std::vector<PendingOp>& ops);

  // back: what is granted goes on and what has run is finished, with or without memory
  /// The op's accesses are granted: it waits for points on the host where it must, else goes on.
  void release(OpRecord& op) noexcept;
  void release(OpRecord& op, ReadyList& ready) noexcept;
  void release_all(ReadyList& ready) noexcept;
  /// Releases what an op on these slots made ready. Returns one that its thread runs next, or null: `next`, which it
  /// has chosen already, or another.
  OpRecord* go_on(OpRecord* next, ReadyList& others, Slots* slots) noexcept;
  /// Whether a thread that ran an op on these slots may go on by itself with one that it made ready.
  bool may_go_on(const Slots* slots) const { return slots != nullptr && on_pool_; }
  /// Whether nothing has to be looked at before an op whose accesses are granted may run; false says nothing.
  [[gnu::always_inline]] bool is_plainly_ready(const OpRecord& op) const {
    return !has_ordered_ && !op.after_end && !op.commutes() && !op.is_wait();
  }
  /// Whether the op, whose accesses are granted, is to be given to the policy now.
  bool may_run(OpRecord& op, ReadyList& ready) noexcept;
  bool points_reached(OpRecord& op);
  FailurePtr lost(const OpInfo& of, const std::exception_ptr& error) noexcept;
  /// So many of the points the op waits for are reached.
  static bool were_last_points(OpRecord& op, std::int32_t points);
  /// Whether it may go to the policy; else its lane keeps it, or it has run since the engine has ended.
  bool admit(OpRecord& op);
  void end_wait(OpRecord& op, ReadyList& ready) noexcept;
  void end_fence(OpRecord& op, ReadyList& ready) noexcept;
  /// A fence for the variable; throws std::bad_alloc.
  OpRecord& make_fence(Port& port, Dep::Var& var);

  // turns (turns.cc): of ops that commute at a variable one runs at a time
  /// Takes the op's turns at all variables where it commutes; or none, then it is kept until that may succeed. To
  /// `others` go ops that were kept and are to be tried again.
  static bool take_turns(OpRecord& op, ReadyList& others) noexcept;
  static void end_turns(OpRecord& op, ReadyList& others) noexcept;
  /// Makes room for the op's marks and tells its lane what to wait for; else the op is not issued, for this reason.
  std::exception_ptr begin_issue(OpRecord& op) noexcept;
  // Each of these runs the op, and returns one that this thread runs next, or null.
  OpRecord* run_one(OpRecord& op, Row& row);
  /// Where ops may not take the plain way.
  OpRecord* run_detoured(OpRecord& op, Row& row);
  /// A function on a host lane that nothing keeps from running.
  OpRecord* run_function(OpRecord& op, Row& row);
  /// The same of a launch, and its successors of that kind.
  OpRecord* run_nodes(OpRecord& first, Row& row);
  /// Whether others get their turn before the thread goes on.
  bool gives_way(const Row& row) const;
  /// Whether the thread, which has chosen `next` or nothing so far, may choose that op.
  bool may_be_next(const OpRecord& op, const OpRecord* next, const Row& row) const;
  OpRecord* end_plain(OpRecord* next, ReadyList& others, Row& row);
  /// Any op, whatever may keep it from running.
  OpRecord* run_with_care(OpRecord& op, const Begin& begin);
  void invoke_node(OpRecord& op, const FailurePtr& poison);
  /// Around the function of an op that is checked.
  void begin_check(OpRecord& op);
  void end_check(OpRecord& op, std::exception_ptr& error);
  OpRecord* run_async(OpRecord& op, const Begin& begin, FailurePtr poison);
  /// Runs the op's function, and returns what it throws.
  std::exception_ptr invoke(OpRecord& op, const FailurePtr& poison);
  /// One part of an async op is done; true if it was the last.
  static bool count_down(AsyncBody& body);
  OpRecord* finish_async(OpRecord& op, Slots* slots);
  Mark leave_point(OpRecord& op);
  /// Takes the op out of its variables' chains. It may be gone then.
  template <class Settle>
  void leave(OpRecord& op, ReadyList& ready, Settle&& settle);
  OpRecord* finish(OpRecord& op, const Ending& ending) noexcept;
  /// As finish, of an op whose function throws just now.
  OpRecord* fail(OpRecord& op, const Row& row);
  /// What finishing does to one variable, to which the op still has access.
  void settle_access(OpRecord& op, Dep::Access& access, const Ending& ending, const FailurePtr& failure);
  void settle_marks(OpRecord& op, Dep::Access& access, const Ending& ending);
  FailurePtr first_poison(OpRecord& op);
  /// Of an op that is marked as lost.
  FailurePtr take_lost(OpRecord& op);
  /// While the engine is traced: when an op begins on this thread, else 0.
  Ticks begin_traced(const Slots* slots);
  /// An op has run well that has begun so, and has not left its variables.
  void record_plain(OpRecord& op, const Row& row);
  void record(OpRecord& op, const Ending& ending, const FailurePtr& failure);
  /// Of an async op, that its function has returned.
  void record_call(OpRecord& op, Ticks begun);
  /// Records how many ops are pending, if that was not done just now.
  void sample(Port& port, Ticks now);
  void save_trace_for_environment() noexcept;
  /// A worker has nothing more to do.
  void rest_traced();
  void one_less_pending(Port& port);
  void tell_if_idle();

  class Visit;  ///< spans the end of an op on a thread that is not the engine's; entry.h
  class Push;   ///< spans a push; entry.h

  FailureLog failures_{number};
  const std::exception_ptr dropped_ =
      std::make_exception_ptr(Error("its OnComplete was destroyed without being called"));
  PendingBytes pending_bytes_{options.max_pending_bytes};
  HeldBack held_back_;
  OpSites sites_;
  RecordPool records_;
  mutable Ports ports_{number};
  /// The only port that has entered anything so far; null before, and once there are several.
  std::atomic<Port*> lone_{nullptr};
  std::atomic<bool> several_{false};
  std::atomic<int> visitors_{0};
  std::atomic<std::uint64_t> failed_{0}, skipped_{0}, cancelled_{0}, waits_{0}, waits_in_ops_{0}, last_wait_id_{0};
  std::atomic<std::uint32_t> threads_numbered_{0};
  std::atomic<bool> has_ordered_{false};
  /// Why ops may not take the plain way, besides what they are themselves.
  enum Detour : unsigned { by_ordered_lanes = 1, by_trace = 2, by_check = 4 };
  std::atomic<unsigned> detours_{0};
  std::atomic<Life> life_{Life::running};

  TraceRecorder trace_;
  std::string trace_path_;  // where the environment wants it; else empty. Fixed, but for a forked child

  Mutex idle_mutex_;
  CondVar idle_;  // nothing may be pending
  /// Threads that wait for it. Changed and read by read-modify-write only: of a thread that comes to wait and one that
  /// has finished an op, the later one sees what the earlier one did.
  std::atomic<int> idle_waiters_{0};

  Mutex launches_mutex_;
  GraphLaunch* launches_ WINDROW_GUARDED_BY(launches_mutex_) = nullptr;       // under way
  const std::shared_ptr<CoreLink> link_ = std::make_shared<CoreLink>(*this);  // for what may outlive the engine
  EndingPlans ending_plans_;

  Mutex shutdown_mutex_;  // one thread shuts down, others wait for it
  ForkGate fork_gate_;

  Mutex table_mutex_;
  std::deque<VarState> vars_ WINDROW_GUARDED_BY(table_mutex_);
  std::vector<VarState*> free_vars_ WINDROW_GUARDED_BY(table_mutex_);
  std::deque<LaneState> lanes_ WINDROW_GUARDED_BY(table_mutex_);

  Mutex point_mutex_;
  /// Of ops marked as lost, the first failed point among those they waited for; none if there was no memory for it.
  std::unordered_map<const OpRecord*, FailurePtr> lost_ WINDROW_GUARDED_BY(point_mutex_);

  const bool on_pool_ = options.policy == Policy::pool;
  const bool callers_run_ = options.policy == Policy::serial;  // ops run on the threads that push
  LaneState* host_ = nullptr;                                  // never changes
  OpInfo end_of_graph_{.name = "the end of a graph"};          // fixed by the constructor
  OpInfo fence_{.name = "a fence"};                            // likewise
  const std::unique_ptr<AccessCheck> access_check_;            // null unless options.check

  std::unique_ptr<Watchdog> watchdog_;     // runs from the first push to the end of shutdown; null if not wanted
  std::unique_ptr<RunningPolicy> policy_;  // last: its threads use all of the above
};

/// Not started.
std::unique_ptr<Watchdog> make_watchdog(Core& core);

}  // namespace windrow
